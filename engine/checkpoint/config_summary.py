"""What a config.json says of its model, and whether that speaks against running it. Light: no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from engine.checkpoint.architectures import EXPERTS_INTERFACE, NO_EXPERTS_INTERFACE

_NUM_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_TOP_K = ("num_experts_per_tok", "moe_topk", "moe_k", "top_k_experts", "num_experts_per_token", "moe_top_k")


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


class ConfigNotRead(Exception):
    """There is no config.json that could be read; says why."""


def has_config(folder: Path) -> bool:
    """Whether there is a config.json. Raises nothing."""
    try:
        return (folder / "config.json").is_file()
    except OSError:
        return False


def summarise_config(folder: Path) -> ConfigSummary:
    """Raises ConfigNotRead."""
    config = _read(folder)
    text = config.get("text_config")
    text = text if isinstance(text, dict) else config
    architecture = str(config.get("model_type") or "")
    num_experts = _number(text, _NUM_EXPERTS)
    return ConfigSummary(
        architecture,
        _number(text, ("num_hidden_layers",)),
        num_experts,
        _number(text, _TOP_K),
        _problem(architecture, _has_experts(architecture, num_experts, text), _quantization(config, text)),
    )


def _read(folder: Path) -> Mapping[str, object]:
    if not has_config(folder):
        if folder.suffix == ".gguf" or (folder.is_dir() and any(folder.glob("*.gguf"))):
            raise ConfigNotRead("a GGUF file, which is not read")
        raise ConfigNotRead("not a model folder: there is no config.json" if folder.is_dir() else "no such folder")
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        said = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ConfigNotRead(f"config.json cannot be read: {said}") from error
    if not isinstance(config, dict):
        raise ConfigNotRead("config.json cannot be read: it holds no object")
    return config


def _number(config: Mapping[str, object], names: Sequence[str]) -> int | None:
    for name in names:
        value = config.get(name)
        numbers = [item for item in (value if isinstance(value, list) else [value]) if type(item) is int]
        if numbers:
            return max(numbers)
    return None


def _has_experts(architecture: str, num_experts: int | None, text: Mapping[str, object]) -> bool:
    if num_experts is not None:
        return num_experts > 1
    is_denied = text.get("enable_moe_block") is False or any(name in text for name in _NUM_EXPERTS)
    return architecture in EXPERTS_INTERFACE and not is_denied


def _quantization(config: Mapping[str, object], text: Mapping[str, object]) -> str:
    found = config.get("quantization_config") or text.get("quantization_config")
    if not found:
        return ""
    return str(found.get("quant_method", "unknown")) if isinstance(found, dict) else str(found)


def _problem(architecture: str, has_experts: bool, quantization: str) -> str:
    if not architecture:
        return "config.json does not name its model type"
    if not has_experts:
        return "not a Mixture-of-Experts model"
    if architecture in NO_EXPERTS_INTERFACE:
        return f"{architecture}: its experts have no interface through which they could be offloaded"
    if architecture not in EXPERTS_INTERFACE:
        return f"the architecture {architecture} is not known"
    return f"quantised weights ({quantization}) cannot be read" if quantization else ""
