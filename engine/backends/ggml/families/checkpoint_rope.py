"""Rotary embeddings as config.json gives them, by GGUF's keys, and some of our own where GGUF has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from engine.backends.ggml.families.rope_parts import yarn_magnitude
from engine.errors import CheckpointError, UnsupportedModelError

KEYS: Final = ("rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor")
"""Of config.json, used here."""
_YARN: Final = {
    "factor": "rope.scaling.factor",
    "original_max_position_embeddings": "rope.scaling.original_context_length",
    "beta_fast": "rope.scaling.yarn_beta_fast",
    "beta_slow": "rope.scaling.yarn_beta_slow",
    "attention_factor": "rope.scaling.yarn_attn_factor",
}


def rope_numbers(config: Mapping[str, Any]) -> dict[str, object]:
    """Raises UnsupportedModelError for kinds that are not computed, CheckpointError."""
    found: dict[str, Any] = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    kind = found.pop("rope_type", None) or found.pop("type", None) or "default"
    found.pop("type", None)
    base = found.pop("rope_theta", config.get("rope_theta", 10_000.0))
    share = found.pop("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    head_dim = config.get("head_dim") or int(config["hidden_size"]) // int(config["num_attention_heads"])
    numbers: dict[str, object] = {"rope.freq_base": float(base), "rope.dimension_count": int(head_dim * float(share))}
    if kind == "yarn":
        return numbers | _yarn(found, config)
    if kind == "linear" and set(found) == {"factor"}:
        return numbers | {"rope.scaling.type": "linear", "rope.scaling.factor": found["factor"]}
    if kind != "default" or found:
        raise UnsupportedModelError(
            f"Rotary embeddings of the kind {str(kind)[:40]!r} are not computed by ggml yet.",
            "Use --backend transformers.",
        )
    return numbers


def _yarn(found: dict[str, Any], config: Mapping[str, Any]) -> dict[str, object]:
    """`mscale`, `mscale_all_dim`: DeepSeek's, of rotated values and of all; the ratio is what rotated values are
    multiplied with. Raises CheckpointError."""
    found.setdefault("original_max_position_embeddings", config.get("max_position_embeddings"))
    if found.get("factor") is None:
        original_tok = _positive(found, "original_max_position_embeddings")
        found["factor"] = _positive(config, "max_position_embeddings") / original_tok
    numbers: dict[str, object] = {"rope.scaling.type": "yarn"}
    numbers["rope.scaling.yarn_truncates"] = found.pop("truncate", True)
    if found.get("mscale_all_dim"):
        of_all, factor = _positive(found, "mscale_all_dim"), _positive(found, "factor")
        numbers["rope.scaling.yarn_log_multiplier"] = 0.1 * of_all
        if found.get("mscale") and found.get("attention_factor") is None:
            of_rotated = yarn_magnitude(factor, _positive(found, "mscale"))
            found["attention_factor"] = of_rotated / yarn_magnitude(factor, of_all)
    left = {key: value for key, value in found.items() if value is not None and key not in ("mscale", "mscale_all_dim")}
    return numbers | {_YARN.get(key, f"rope_parameters.{key}"): value for key, value in left.items()}


def _positive(numbers: Mapping[str, Any], key: str) -> float:
    value = numbers.get(key)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < 1e12:
        raise CheckpointError(f"{key} of the rotary embeddings is {str(value)[:40]!r}.", "Correct config.json.")
    return float(value)
