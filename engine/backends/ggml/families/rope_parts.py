"""Rotary embeddings as files describe them: plain, stretched evenly (`linear`), or by YaRN.

YaRN: "YaRN: Efficient Context Window Extension of Large Language Models", section 3. Frequencies that turn often within
the original context are kept, those that turn rarely are divided by the factor, between them a ramp over the pairs.
"""

from __future__ import annotations

import math

from engine.backends.ggml.attention_spec import RopeSpec
from engine.backends.ggml.families.stored_model import StoredModel

_MAX_FACTOR, _MAX_TOK = 1e6, 1 << 31


def read_rope(
    model: StoredModel,
    num_dims: int,
    is_interleaved: bool = False,
    truncates: bool = True,
    magnitude: float | None = None,
    has_sections: bool = False,
) -> RopeSpec:
    """`truncates`: whether YaRN's ramp begins and ends at whole pairs; `magnitude`: what it multiplies rotated values
    with, None: `yarn_magnitude`. Both are used where the model does not say them. `has_sections`: pairs are shared out
    to positions of several kinds, which are the same ones in text. Raises CheckpointError and UnsupportedModelError."""
    base = model.number("rope.freq_base", 1, 1e12, default=10_000.0)
    if has_sections:
        model.ignore("rope.dimension_sections")
    else:
        model.require("rope.dimension_sections")
    model.require("rope.scaling.attn_factor", 0, 1)
    kind = model.choice("rope.scaling.type", {"none": "", "default": "", "linear": "linear", "yarn": "yarn"}, "")
    if not kind:
        model.require("rope.scaling.factor", 0, 1)
        return RopeSpec(num_dims, base, is_interleaved)
    factor = model.number("rope.scaling.factor", 1, _MAX_FACTOR)
    if kind == "linear":
        return RopeSpec(num_dims, base, is_interleaved, (factor,) * (num_dims // 2))
    magnitude = yarn_magnitude(factor) if magnitude is None else magnitude
    magnitude = model.number("rope.scaling.yarn_attn_factor", 0, 1e3, default=magnitude)
    return RopeSpec(num_dims, base, is_interleaved, _yarn_divisors(model, num_dims, base, factor, truncates), magnitude)


def yarn_magnitude(factor: float, strength: float = 1.0) -> float:
    """What YaRN multiplies rotated values with (section 3.4: the square root of 1 / t); `strength`: DeepSeek's
    `mscale`."""
    return 1.0 if factor <= 1 else 0.1 * strength * math.log(factor) + 1.0


def _yarn_divisors(model: StoredModel, num_dims: int, base: float, factor: float, truncates: bool) -> tuple[float, ...]:
    original_tok = model.integer("rope.scaling.original_context_length", 1, _MAX_TOK)
    model.require("rope.scaling.yarn_ext_factor", 1, -1)
    fast = model.number("rope.scaling.yarn_beta_fast", 1e-3, 1e6, default=32.0)
    slow = model.number("rope.scaling.yarn_beta_slow", 1e-3, 1e6, default=1.0)

    def pair_that_turns(num_turns: float) -> float:
        """The pair, as a fraction, that turns so often over the original context."""
        return num_dims * math.log(original_tok / (num_turns * 2 * math.pi)) / (2 * max(math.log(base), 1e-9))

    low, high = pair_that_turns(fast), pair_that_turns(slow)
    if model.flag("rope.scaling.yarn_truncates", truncates):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, num_dims - 1)
    width = high - low or 0.001
    shares = [min(max((pair - low) / width, 0.0), 1.0) for pair in range(num_dims // 2)]
    """Of the stretched frequency, by pair."""
    return tuple(1 / (share / factor + 1 - share) for share in shares)
