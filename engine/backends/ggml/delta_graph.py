"""A recurrent layer's attention as part of a graph; see `delta_spec`."""

from __future__ import annotations

from typing import Final, NamedTuple

from engine.backends.ggml.delta_spec import DeltaAttention, DeltaHeads
from engine.backends.ggml.graph import GraphBuilder, Tensor
from engine.backends.ggml.graph_delta import DeltaInputs
from engine.backends.ggml.graph_parts import GraphParts

_EPS: Final = 1e-6
"""Of the lengths of queries and keys, as the library has it."""


class StateTensors(NamedTuple):
    """What one recurrent layer remembers of the tokens so far, float32. Graphs read and overwrite it."""

    conv: Tensor
    """[conv_tok - 1, mixed_dim]"""
    state: Tensor
    """[dim, dim, num_value_heads]"""


def delta_output(
    builder: GraphBuilder,
    parts: GraphParts,
    heads: DeltaHeads,
    weights: DeltaAttention,
    states: StateTensors,
    hidden: Tensor,
) -> tuple[Tensor, list[Tensor]]:
    """hidden float32 [hidden, tokens] -> (the same shape, the writes into `states`)."""
    num_tok = hidden.shape[1]
    mixed = parts.product(builder, weights.mixed, hidden)
    window = builder.concat(states.conv, builder.turned(mixed))
    kept = builder.copied(builder.columns(window, num_tok, heads.conv_tok - 1), states.conv)
    convolved = builder.silu(builder.convolved(window, parts.tensor(builder, weights.conv)))
    given, after = builder.delta_rule(_inputs(builder, parts, heads, weights, convolved, hidden), states.state)
    written = [kept, builder.copied(after, states.state)]
    normed = builder.reshape(parts.norm(builder, given, weights.norm), heads.value_dim, num_tok)
    gated = builder.gated(parts.product(builder, weights.gate, hidden), normed)
    return parts.product(builder, weights.output, gated), written


def _inputs(
    builder: GraphBuilder,
    parts: GraphParts,
    heads: DeltaHeads,
    weights: DeltaAttention,
    convolved: Tensor,
    hidden: Tensor,
) -> DeltaInputs:
    """`convolved`: float32 [mixed_dim, tokens]. ggml has value head h belong to key head h % num_key_heads."""
    times = 1 if heads.is_tiled else heads.num_value_heads // heads.num_key_heads
    query, key = (
        builder.repeated_heads(builder.unit_rows(each, _EPS), times)
        for each in (builder.heads_of(convolved, first, heads.num_key_heads, heads.dim) for first in (0, heads.key_dim))
    )
    value = builder.heads_of(convolved, 2 * heads.key_dim, heads.num_value_heads, heads.dim)
    alpha = parts.projection(builder, weights.alpha, weights.decay_bias, hidden)
    log_decay = builder.mul(builder.softplus(alpha), parts.tensor(builder, weights.decay))
    beta = builder.sigmoid(parts.product(builder, weights.beta, hidden))
    shape = (1, heads.num_value_heads, hidden.shape[1])
    return DeltaInputs(
        query, key, builder.contiguous(value), builder.reshape(log_decay, *shape), builder.reshape(beta, *shape)
    )
