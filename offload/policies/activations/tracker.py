"""The running request's activation matrices, and the past request that its present iteration resembles most."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from offload.geometry import Geometry
from offload.policies.activations.collection import ActivationCollection

_EPSILON = 1e-3
"""The formula's epsilon: tokens that an expert without any counts as having had. The paper gives no value."""
_ORDERED = 256
"""Experts of later layers that are put in order at most."""


class ActivationTracker:
    """A RoutingObserver. The iteration's matrix is matched as far as its layers are known, in decode; prefill is
    counted in a matrix of its own and not matched, since nothing is predicted there.

    With no past requests, or before a token's first layer was routed in the first iteration, there is no match: nothing
    is prefetched, and eviction goes by what the request itself has used so far.
    """

    def __init__(self, geometry: Geometry, collection: ActivationCollection) -> None:
        self.collection = collection
        shape = collection.shape
        self._geometry = geometry
        self._decode, self._prefill = _no_counts(shape), _no_counts(shape)
        self._is_decode = False
        self._products, self._cosines = np.zeros((2, collection.capacity), np.float32)
        self._distance = (1 - np.arange(shape[0]) / max(shape[0], 1)).astype(np.float32)[:, None]
        self.running_layer = shape[0]
        """The last layer of the running decode iteration that was routed; behind all layers where none runs."""
        self.match: int | None = None
        """The entry of the collection that the iteration resembles most; that of the last layer or iteration until the
        next is known."""
        self._keep: np.ndarray | None = None
        self._orders: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._version = collection.version

    # -- RoutingObserver

    def begin_request(self) -> None:
        """See RoutingObserver."""
        self._decode, self._prefill = _no_counts(self.collection.shape), _no_counts(self.collection.shape)
        self._forget_match()

    def begin_iteration(self, *, is_decode: bool) -> None:
        """See RoutingObserver."""
        self._is_decode, self.running_layer = is_decode, self.collection.shape[0]
        self._products[:] = 0
        if self._version != self.collection.version:
            self._forget_match()

    def routed(self, layer: int, experts: Sequence[int], num_tok: Sequence[int]) -> None:
        """See RoutingObserver. Cosine over the rows up to this layer: one product a layer is added to those before. The
        length of the iteration's own rows is the same for every entry, and left out."""
        own = (self._decode if self._is_decode else self._prefill)[layer]
        for expert, tokens in zip(experts, num_tok, strict=True):
            own[expert] += tokens
        if self.match is None:
            self._keep = None
        if not self._is_decode or not self.collection.size:
            return
        self.running_layer = layer
        self.collection.add_products(layer, experts, self._products)
        np.multiply(self._products, self.collection.inverse_lengths[layer], out=self._cosines)
        best = int(self._cosines.argmax())
        if best != self.match:
            self.match, self._keep = best, None

    def end_request(self) -> None:
        """See RoutingObserver. The request's decode matrix joins the collection."""
        self.collection.add(np.array(self._decode))
        self._decode, self._prefill = _no_counts(self.collection.shape), _no_counts(self.collection.shape)

    def _forget_match(self) -> None:
        self.match, self._keep, self._version = None, None, self.collection.version
        self._orders.clear()

    # -- what is read off

    def keep_priority(self) -> np.ndarray:
        """float32 [layers, experts]: p = (EAM[layer, expert] + epsilon)(1 - layer/L) / row sum; the lowest is evicted
        first. After "MoE-Infinity", section on caching; EAM is the match, or without one the request's own."""
        if self._keep is None:
            if self.match is not None:
                counts = self.collection.counts(self.match)
            else:
                decode = np.array(self._decode)
                counts = decode if decode.any() else np.array(self._prefill)
            sums = np.maximum(counts.sum(axis=1, keepdims=True), 1)
            self._keep = ((counts + _EPSILON) / sums * self._distance).astype(np.float32)
        return self._keep

    def prefetch_order(self, layer: int) -> Sequence[tuple[int, int]]:
        """(layer, expert) of later layers by likelihood x (1 - (their layer - this layer)/L), highest first; after
        "MoE-Infinity", section on prefetching. Empty without a match."""
        if self.match is None:
            return ()
        order = self._orders.get((self.match, layer))
        if order is None:
            order = self._orders[self.match, layer] = self._ordered(self.match, layer)
        return order

    def _ordered(self, match: int, layer: int) -> list[tuple[int, int]]:
        counts = self.collection.counts(match)[layer + 1 :].astype(np.float32)
        if not counts.size:
            return []
        likely = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        distances = np.arange(1, len(counts) + 1) / self.collection.shape[0]
        priority = (likely * (1 - distances)[:, None]).ravel()
        best = np.argsort(-priority, kind="stable")[:_ORDERED]
        width = counts.shape[1]
        return [(layer + 1 + int(at) // width, int(at) % width) for at in best[priority[best] > 0]]


def _no_counts(shape: tuple[int, int]) -> list[list[int]]:
    return [[0] * shape[1] for _ in range(shape[0])]
