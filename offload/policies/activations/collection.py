"""Activation matrices of past requests, and which of them an iteration resembles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from offload.geometry import Geometry

CAPACITY: Final = 120
"""Requests kept: where the paper's latency stopped falling (MoE-Infinity, section on the collection's size)."""


class ActivationCollection:
    """At most `capacity` request matrices, counts of tokens [layers, experts], padded to the widest layer.

    A full collection gives up the entry that is most similar to the one that comes.
    """

    def __init__(self, geometry: Geometry, capacity: int = CAPACITY) -> None:
        """Raises ValueError for a capacity below 1."""
        if capacity < 1:
            raise ValueError(f"a collection of {capacity} matrices")
        widest = max((layer.num_experts for layer in geometry.layers), default=0)
        self.shape = (geometry.num_layers, widest)
        self.capacity = capacity
        self.size = 0
        self.version = 0
        """Rises with every change."""
        self._counts = np.zeros((capacity, *self.shape), np.uint32)
        self._rows = np.zeros((geometry.num_layers, widest, capacity), np.float32)
        """Counts divided by their row's sum: how likely a token of the layer goes to each expert. What all entries have
        for one expert is side by side."""
        self._inverse_lengths = np.zeros((geometry.num_layers, capacity), np.float32)
        self._shares = [np.full(count, 1 / max(count, 1), np.float32) for count in range(widest + 1)]

    @property
    def num_bytes(self) -> int:
        """Memory that the matrices take."""
        return self._counts.nbytes + self._rows.nbytes + self._inverse_lengths.nbytes

    def counts(self, number: int) -> np.ndarray:
        """uint32 [layers, experts] of one entry."""
        own: np.ndarray = self._counts[number]
        return own

    def all_counts(self) -> np.ndarray:
        """uint32 [size, layers, experts]."""
        return self._counts[: self.size]

    def add_products(self, layer: int, experts: Sequence[int], products: np.ndarray) -> None:
        """Adds one layer's part of the match with every entry, by one product: of the row of a token that was routed to
        `experts`. `products` is float32 [capacity]."""
        if experts:
            share = self._shares[len(experts)]
            products += share @ self._rows[layer].take(experts, axis=0)

    @property
    def inverse_lengths(self) -> np.ndarray:
        """float32 [layers, capacity]: 1 / the length of each entry's rows up to a layer; 0 where there is no entry."""
        return self._inverse_lengths

    def add(self, counts: np.ndarray) -> None:
        """Takes a request's matrix in; one without tokens is left out. Raises ValueError for another shape."""
        if counts.shape != self.shape:
            raise ValueError(f"a matrix of {counts.shape} in a collection of {self.shape}")
        if not counts.any():
            return
        rows = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        place = self.size if self.size < self.capacity else self._most_similar(rows.astype(np.float32))
        self._counts[place] = np.minimum(counts, np.iinfo(np.uint32).max)
        self._rows[:, :, place] = rows
        self._inverse_lengths[:, place] = 1 / np.sqrt(np.maximum((rows * rows).sum(axis=1).cumsum(), 1e-12))
        self.size = max(self.size, place + 1)
        self.version += 1

    def _most_similar(self, rows: np.ndarray) -> int:
        products = np.einsum("len,le->n", self._rows[:, :, : self.size], rows)
        return int(np.argmax(products * self._inverse_lengths[-1, : self.size]))
