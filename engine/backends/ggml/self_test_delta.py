"""A part of `self_test`: a convolution and the gated delta rule, compared with numpy."""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.backends.ggml.compute import Compute, Scratch
from engine.backends.ggml.graph import GraphBuilder, Tensor
from engine.backends.ggml.graph_delta import DeltaInputs
from engine.backends.ggml.library import Ggml
from engine.backends.ggml.memory import Memory, values
from engine.backends.ggml.tensor_types import F32

_DIM, _KEY_HEADS, _VALUE_HEADS, _TOK, _CONV = 16, 2, 4, 3, 4
_MIXED: Final = (2 * _KEY_HEADS + _VALUE_HEADS) * _DIM
_MAX_ERROR: Final = 1e-4


def delta_problem(ggml: Ggml, compute: Compute, scratch: Scratch) -> str:
    """What is wrong; empty: nothing."""
    builder = GraphBuilder(ggml, 64, 1, 64)
    random, memory = np.random.default_rng(1), Memory(1 << 18)

    def floats(*shape: int) -> tuple[Tensor, np.ndarray]:
        address, raw = memory.take(4 * int(np.prod(shape)))
        held = values(raw, np.float32, *reversed(shape))
        held[...] = random.standard_normal(held.shape)
        return builder.new_at(address, F32, *shape), held

    before, before_values = floats(_CONV - 1, _MIXED)
    mixed, mixed_values = floats(_MIXED, _TOK)
    conv, conv_values = floats(_CONV, _MIXED)
    log_decay, decay_values = floats(1, _VALUE_HEADS, _TOK)
    beta, beta_values = floats(1, _VALUE_HEADS, _TOK)
    state, state_values = floats(_DIM, _DIM, _VALUE_HEADS)
    window = builder.concat(before, builder.turned(mixed))
    convolved = builder.silu(builder.convolved(window, conv))
    query, key = (
        builder.repeated_heads(builder.unit_rows(builder.heads_of(convolved, first, _KEY_HEADS, _DIM), 1e-6), 2)
        for first in (0, _KEY_HEADS * _DIM)
    )
    value = builder.contiguous(builder.heads_of(convolved, 2 * _KEY_HEADS * _DIM, _VALUE_HEADS, _DIM))
    given, after = builder.delta_rule(DeltaInputs(query, key, value, log_decay, builder.sigmoid(beta)), state)
    expected, expected_state = _expected(
        *(np.concatenate([before_values.T, mixed_values]), conv_values),
        *(decay_values, beta_values, state_values.astype(np.float64)),
    )
    out_at, out = memory.take(4 * _DIM * _VALUE_HEADS * _TOK)
    graph = builder.graph(builder.placed(builder.contiguous(given), out_at), builder.copied(after, state))
    scratch.allocate(graph)
    compute.run(graph)
    found = values(out, np.float32, _TOK, _VALUE_HEADS, _DIM)
    error = max(_error(found, expected), _error(state_values, expected_state))
    builder.close()
    return "" if error <= _MAX_ERROR else f"a gated delta rule is wrong by {error:.3g}"


def _error(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def _expected(
    window: np.ndarray, conv: np.ndarray, log_decay: np.ndarray, beta: np.ndarray, state: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """float64 [tokens, heads, dim], and the state, of which row j is column j of the paper's."""
    mixed = np.stack([(window[token : token + _CONV].T * conv).sum(axis=1) for token in range(_TOK)]).astype(np.float64)
    heads = (mixed / (1 + np.exp(-mixed))).reshape(_TOK, -1, _DIM)
    unit = heads / np.sqrt((heads**2).sum(axis=-1, keepdims=True) + 1e-6)
    given = np.empty((_TOK, _VALUE_HEADS, _DIM))
    for token in range(_TOK):
        for head in range(_VALUE_HEADS):
            query, key = unit[token, head // 2], unit[token, _KEY_HEADS + head // 2]
            state[head] *= np.exp(log_decay[token, head, 0])
            strength = 1 / (1 + np.exp(-beta[token, head, 0]))
            missing = strength * (heads[token, 2 * _KEY_HEADS + head] - state[head] @ key)
            state[head] += np.outer(missing, key)
            given[token, head] = state[head] @ query / np.sqrt(_DIM)
    return given, state
