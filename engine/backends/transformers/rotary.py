"""Rotary embeddings whose frequencies depend on the positions asked for, on the meta device."""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

_FIXED = "default"


def fix_for_shapes(model: nn.Module) -> None:
    """Lets rotary embeddings of every kind run on the meta device, where a position has no value to decide by.

    Changes the model for good: its numbers are those of another kind, of the same shapes. For a model that is only
    measured.
    """
    for module in model.modules():
        kinds: Any = getattr(module, "rope_type", None)
        if isinstance(kinds, str):
            module.rope_type = _FIXED  # type: ignore[assignment]
        elif isinstance(kinds, dict):
            module.rope_type = dict.fromkeys(kinds, _FIXED)
        if kinds is not None and hasattr(module, "config"):
            module.config = _with_fixed_kind(module.config)  # type: ignore[assignment]


def _with_fixed_kind(config: Any) -> Any:
    """A copy: some rotary embeddings look their kind up there, in one set of parameters or in one a layer type."""
    config = copy.deepcopy(config)
    parameters = getattr(config, "rope_parameters", None) or {}
    for held in (parameters, *(value for value in parameters.values() if isinstance(value, dict))):
        if "rope_type" in held:
            held["rope_type"] = _FIXED
    return config
