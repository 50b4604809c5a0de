"""Rotary embeddings whose frequencies depend on the positions asked for, on the meta device."""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

_FIXED = "default"


def fix_for_shapes(model: nn.Module) -> None:
    """Lets rotary embeddings of every kind run on the meta device, where a position has no value to decide by.

    Changes the model permanently: values become wrong, shapes stay right. Only for a model that is measured and then
    discarded.
    """
    rotary: Any
    for rotary in model.modules():
        kinds = getattr(rotary, "rope_type", None)
        if kinds is None:
            continue
        rotary.rope_type = dict.fromkeys(kinds, _FIXED) if isinstance(kinds, dict) else _FIXED
        if hasattr(rotary, "config"):
            rotary.config = _with_fixed_kind(rotary.config)


def _with_fixed_kind(config: Any) -> Any:
    """A copy: some rotary embeddings look their kind up there, in one set of parameters or in one a layer type."""
    config = copy.deepcopy(config)
    parameters = getattr(config, "rope_parameters", None) or {}
    for held in (parameters, *(value for value in parameters.values() if isinstance(value, dict))):
        if "rope_type" in held:
            held["rope_type"] = _FIXED
    return config
