"""A small network that scores the next layer's experts by the experts selected so far, run with numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class SelectionPredictor:
    """A multi-label network, batch norm folded into its weights, as it is kept. `layers`, `experts`: MoE layers, and
    the most experts of any. `SelectionScorer` runs it.

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
        """Memory that it takes, with what a scorer makes of it."""
        arrays = (self.history, self.history, self.layer_rows, self.affinity_rows, self.popularity, self.affinity)
        return sum(each.nbytes for each in (*arrays, *self.weights, *self.biases))


class SelectionScorer:
    """Runs a predictor through one token after the other. What each layer selected is added once: a prediction costs
    the same at every layer, two table rows a selected expert and a product a further layer of the network."""

    def __init__(self, predictor: SelectionPredictor) -> None:
        num_layers, num_experts = predictor.popularity.shape
        width = predictor.history.shape[1]
        followed = predictor.affinity @ predictor.affinity_rows
        self._rows = np.concatenate((predictor.history.reshape(num_layers, num_experts, width), followed), axis=2)
        """[layers, experts, 2 * width]: for a selected expert, what it adds for all layers behind, and for the next."""
        self._layer_rows = predictor.layer_rows
        self._weights = [_with_bias(*pair) for pair in zip(predictor.weights, predictor.biases, strict=True)]
        self._values = [np.ones(len(weight), np.float32) for weight in self._weights]
        """Each layer's input; its last value is always 1, for the bias."""
        self._scores = np.zeros(num_experts + 1, np.float32)
        self._zeros = [np.zeros_like(value) for value in self._values]
        self._first, self._history = self._values[0][:width], np.zeros(width, np.float32)
        self._own = np.zeros(2 * width, np.float32)
        self._for_all, self._for_next = self._own[:width], self._own[width:]
        self._layer, self._num_selected = 0, 1

    def begin(self) -> None:
        """A token begins."""
        self._history[:] = 0

    def add(self, layer: int, experts: Sequence[int]) -> None:
        """The token's next layer selected `experts`."""
        self._rows[layer].take(experts or (0,), axis=0).sum(axis=0, out=self._own)
        if not experts:
            self._own[:] = 0
        self._history += self._for_all
        self._layer, self._num_selected = layer, max(len(experts), 1)

    def scores(self) -> np.ndarray:
        """float32 [experts]: for the layer behind the one added last. Valid until the next call."""
        first = self._first
        np.multiply(self._for_next, 1 / self._num_selected, out=first)
        first += self._history
        first += self._layer_rows[self._layer + 1]
        after = (*self._values[1:], self._scores)
        for value, zeros, weight, result in zip(self._values, self._zeros, self._weights, after, strict=True):
            np.maximum(value, zeros, out=value)
            np.dot(value, weight, out=result)
        return self._scores[:-1]


def _with_bias(weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """[width + 1, next width + 1]: the bias as a row for an input that is 1, and a column that gives 1 again."""
    widened = np.zeros((weight.shape[0] + 1, weight.shape[1] + 1), np.float32)
    widened[:-1, :-1], widened[-1, :-1], widened[-1, -1] = weight, bias, 1
    return widened
