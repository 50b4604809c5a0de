"""A small network that scores the next layer's experts by the experts selected so far, run with numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class SelectionPredictor:
    """A multi-label network, batch norm folded into its weights. `layers`, `experts`: MoE layers, and the most experts
    of any.

    Its input is, for the layer that is predicted: which experts every layer before it selected, how popular its own
    are, how often they follow those of the layer before, and which layer it is. After "DuoServe-MoE: Dual-Phase Expert
    Prefetch", section "Mechanism".
    """

    history: np.ndarray
    """float32 [layers * experts, width]: the first product's rows for a selected expert."""
    layer_rows: np.ndarray
    """float32 [layers, width]: its rows for the layer that is predicted, bias and popularity's part added."""
    affinity_rows: np.ndarray
    """float32 [experts, width]: its rows for the affinity."""
    popularity: np.ndarray
    """float32 [layers, experts]: the share of tokens that selected the expert."""
    affinity: np.ndarray
    """float32 [layers, experts, experts]: of the tokens that selected an expert of the layer, the share that selected
    each of the next one's."""
    weights: tuple[np.ndarray, ...]
    """float32 [width, next width] each."""
    biases: tuple[np.ndarray, ...]

    @property
    def num_bytes(self) -> int:
        """Memory that it takes."""
        arrays = (self.history, self.layer_rows, self.affinity_rows, self.popularity, self.affinity)
        return sum(each.nbytes for each in (*arrays, *self.weights, *self.biases))

    def scores(self, selected: Sequence[Sequence[int]]) -> np.ndarray:
        """float32 [experts]: for the layer behind those of `selected`, of which there is at least one."""
        layer, num_experts = len(selected), self.popularity.shape[1]
        rows = [at * num_experts + expert for at, experts in enumerate(selected) for expert in experts]
        last = list(selected[-1])
        inner = self.history[rows].sum(axis=0) + self.layer_rows[layer]
        inner += self.affinity[layer - 1, last].mean(axis=0) @ self.affinity_rows
        for weight, bias in zip(self.weights, self.biases, strict=True):
            inner = np.maximum(inner, 0) @ weight + bias
        scored: np.ndarray = inner
        return scored
