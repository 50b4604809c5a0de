"""What a forward keeps of every token from layer to layer, in memory of its own."""

from __future__ import annotations

import numpy as np

from engine.backends.ggml.memory import Memory, values
from engine.backends.ggml.model_spec import ModelSpec


class PromptStates:
    """What prefill keeps of every token of a prompt from layer to layer: residual, normed input, logits."""

    def __init__(self, spec: ModelSpec, num_tok: int) -> None:
        self._memory = Memory(prompt_state_bytes(spec) * num_tok + 4096)
        hidden, experts = spec.hidden_dim, num_experts_of(spec)
        self.residual_at, raw = self._memory.take(hidden * num_tok * 4)
        self.residual = values(raw, np.float32, num_tok, hidden)
        self.normed_at, raw = self._memory.take(hidden * num_tok * 4)
        self.normed = values(raw, np.float32, num_tok, hidden)
        self.logits_at, raw = self._memory.take(experts * num_tok * 4)
        self.logits = values(raw, np.float32, num_tok, experts)


def num_experts_of(spec: ModelSpec) -> int:
    """Of the layer with the most."""
    return max(len(layer.experts) for layer in spec.layers)


def prompt_state_bytes(spec: ModelSpec) -> int:
    """Bytes of `PromptStates` for every token of a prompt."""
    return 4 * (2 * spec.hidden_dim + num_experts_of(spec))


def chunks_of(num_tok: int, chunk_tok: int, split_at: int = 0) -> list[tuple[int, int]]:
    """(first token, number of tokens) of every chunk of a prompt; one ends at `split_at`."""
    return [
        (first, min(chunk_tok, end - first))
        for start, end in ((0, split_at), (split_at, num_tok))
        for first in range(start, end, chunk_tok)
    ]
