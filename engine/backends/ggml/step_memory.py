"""What a decode step's graphs write beside the states of the token, at fixed addresses."""

from __future__ import annotations

import numpy as np

from engine.backends.ggml.memory import Memory, values
from engine.backends.ggml.model_spec import ModelSpec
from engine.backends.ggml.prompt_states import num_experts_of


class StepMemory:
    """Of one model; rows have room for the experts of the layer with the most."""

    def __init__(self, spec: ModelSpec, num_ahead: int) -> None:
        """`num_ahead`: later routers that a layer's own graph asks at most."""
        experts = num_experts_of(spec)
        row_bytes, rows = 4 * experts, num_ahead + 1
        memory = self._memory = Memory(2 * rows * (row_bytes + 64) + 4 * (spec.top_k + spec.vocabulary_tok) + 4096)
        next_at, raw = memory.take(row_bytes * rows)
        self.next_logits = values(raw, np.float32, rows, experts)
        """Of the routers asked in a layer's graph, and behind them of the one asked alone."""
        orders_at, raw = memory.take(row_bytes * rows)
        orders = values(raw, np.int32, rows, experts)
        self.chosen = orders[:1, : spec.top_k]
        """int32 [1, k]: the experts of the running layer, as its graph ranks them."""
        self.next_orders = orders[1:]
        """int32 [num_ahead, experts]: those of the routers asked in its graph."""
        self.weights_at, raw = memory.take(4 * spec.top_k)
        self.weights = values(raw, np.float32, 1, spec.top_k)
        """Of the chosen, [1, k]."""
        self.logits_at, raw = memory.take(4 * spec.vocabulary_tok)
        self.logits = values(raw, np.float32, spec.vocabulary_tok)
        """Of the vocabulary."""
        self.next_logits_at = tuple(next_at + row_bytes * row for row in range(rows))
        self.orders_at = tuple(orders_at + row_bytes * row for row in range(rows))
        """Of the running layer's, and of the later ones'."""
