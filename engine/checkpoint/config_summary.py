"""What a config.json says of its model, and whether that speaks against running it. Light: no torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from engine.checkpoint.architectures import EXPERTS_INTERFACE, NO_EXPERTS_INTERFACE
from engine.checkpoint.config_file import CONFIG_FILE, NUM_EXPERTS, TOP_K, largest_number, text_part
from offload.bounded_json import shown


class ConfigSummary(NamedTuple):
    """The model by its config.json; None, or empty, where it does not say."""

    architecture: str
    """The model type."""
    num_layers: int | None
    num_experts: int | None
    """Routed experts a layer; where layers differ, the most."""
    top_k: int | None
    problem: str
    """Why it cannot be run; empty: nothing in here speaks against it."""
    quantization: str
    """How its weights are quantised; empty: they are not."""


def has_config(folder: Path) -> bool:
    """Whether there is something of that name; what, the reader of it finds out. Raises nothing."""
    return os.path.lexists(folder / CONFIG_FILE)


def summarise_config(config: Mapping[str, object]) -> ConfigSummary:
    """The summary of a configuration that `read_config_file` has checked."""
    text = text_part(config)
    architecture = str(config["model_type"])
    num_experts = largest_number(text, NUM_EXPERTS)
    return ConfigSummary(
        architecture,
        largest_number(text, ("num_hidden_layers",)),
        num_experts,
        largest_number(text, TOP_K),
        _problem(architecture, _has_experts(architecture, num_experts, text)),
        _quantization(config, text),
    )


def _has_experts(architecture: str, num_experts: int | None, text: Mapping[str, object]) -> bool:
    if num_experts is not None:
        return num_experts > 1
    is_denied = text.get("enable_moe_block") is False or any(name in text for name in NUM_EXPERTS)
    return architecture in EXPERTS_INTERFACE and not is_denied


def _quantization(config: Mapping[str, object], text: Mapping[str, object]) -> str:
    found = config.get("quantization_config") or text.get("quantization_config")
    if not found:
        return ""
    method = found.get("quant_method", "unknown") if isinstance(found, dict) else found
    return method if isinstance(method, str) and len(method) <= 60 else shown(method)


def _problem(architecture: str, has_experts: bool) -> str:
    if not has_experts:
        return "not a Mixture-of-Experts model"
    name = architecture if len(architecture) <= 60 else shown(architecture)
    if architecture in NO_EXPERTS_INTERFACE:
        return f"{name}: its experts have no interface through which they could be offloaded"
    if architecture not in EXPERTS_INTERFACE:
        return f"the architecture {name} is not known"
    return ""
