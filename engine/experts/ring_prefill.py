"""Prefill's experts through a ring of a few staging slots, or straight into empty decode slots."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

from engine.experts.prefill import RING, Fetched
from offload.geometry import Geometry
from offload.link.lease import Lease
from offload.link.staging import StagingRing
from offload.residency.cache import ExpertCache

_READ_AHEAD_SHARE = 0.8
"""Of a layer's absent experts that are used, from which on the next layer's are read before its routing is known."""


@dataclass(slots=True)
class _Fetching:
    """One layer's experts on their way through the ring."""

    layer: int
    waiting: deque[int]
    staying: frozenset[int]
    """Experts for which decode slots are empty."""
    width: int
    """Experts started at once: all where each has a decode slot."""
    reads_ahead: bool
    started: deque[tuple[int, Lease, bool]] = field(default_factory=deque)
    """(expert, its slot, whether that is one of the ring's), in order."""


class RingPrefill:
    """Experts one after the other, through as many staging slots as the ring has.

    Slots are filled again once half of them are free, so that experts that follow each other in the file are read at
    once. Where nearly all experts of a layer are used, the next layer's are read while its last ones are computed, from
    the first absent one on: its own routing will hardly leave any out.
    """

    def __init__(
        self, cache: ExpertCache, ring: StagingRing, geometry: Geometry, is_cancelled: Callable[[], bool]
    ) -> None:
        self._cache, self._ring, self._geometry, self._is_cancelled = cache, ring, geometry, is_cancelled
        self._half = max(ring.num_slots // 2, 1)
        self.served: Counter[str] = Counter()
        self._ahead_layer, self._ahead_end, self._num_ahead = -1, 0, 0
        """The layer whose experts are read before its routing is known, up to which one, and how many those are."""
        self._ahead: dict[int, Lease] = {}
        """Those of them, in the ring or on their way there."""
        self._filled_ahead: set[int] = set()
        """Later layers whose experts are on their way to their slots, which are locked."""
        self._forecast: tuple[int, Sequence[int]] = (-1, ())
        """A layer, and the experts it will probably use, most used first."""

    def fetch(
        self, layer: int, experts: Sequence[int], by_use: Sequence[int], num_tok: int
    ) -> Generator[list[Fetched]]:
        """See ExpertPrefill."""
        self.served[RING] += 1
        reads_ahead = self._reads_ahead(layer, len(experts), num_tok)
        ahead = self._take_ahead(layer)
        unread = [expert for expert in by_use if expert not in ahead and self._cache.is_absent(layer, expert)]
        staying = frozenset(unread[: self._cache.num_empty_slots(layer)])
        width = len(experts) if not ahead and len(staying) == len(unread) else self._ring.num_slots
        fetching = _Fetching(layer, deque(experts), staying, width, reads_ahead)
        self._take_in_turn(fetching, ahead)
        self._fill(fetching)
        if reads_ahead and not fetching.waiting and self._cache.holds_all(layer):
            self._fill_ahead(layer + 1)
        return self._arriving(fetching)

    def _arriving(self, fetching: _Fetching) -> Generator[list[Fetched]]:
        ring, started, is_read = self._ring, fetching.started, False
        try:
            while fetching.waiting or started:
                self._fill_half(fetching)
                landed = self._landed(started)
                yield [
                    Fetched(expert, None, ring.memory(lease.slot)) if is_staged else Fetched(expert, lease.slot, None)
                    for expert, lease, is_staged in landed
                ]
                for _, lease, is_staged in landed:
                    if is_staged:
                        ring.free(lease.slot)
            self._fill_half(fetching)
            is_read = True
        finally:
            if is_read:
                self._cache.count_staged(ring.take_landed())
            else:
                self.abandon()

    def _take_in_turn(self, fetching: _Fetching, ahead: dict[int, Lease]) -> None:
        """Of what is in the ring already, keeps what comes before anything that is not on its way: in another order it
        would block the ring."""
        layer, waiting = fetching.layer, fetching.waiting
        while ahead and waiting and (waiting[0] in ahead or not self._cache.is_absent(layer, waiting[0])):
            expert = waiting.popleft()
            lease = ahead.pop(expert, None)
            slot_lease = self._cache.claim_free(layer, expert) if lease is None else None
            fetching.started.append((expert, lease or slot_lease or self._load(layer, expert), slot_lease is None))
        for lease in ahead.values():
            self._ring.free(lease.slot)

    def _fill_half(self, fetching: _Fetching) -> None:
        """Starts more, once half of the ring is free: of this layer or, when all of these are begun, of the next."""
        if len(fetching.started) > self._ring.num_slots - self._half:
            return
        self._fill(fetching)
        if fetching.reads_ahead and not fetching.waiting:
            self._read_ahead(fetching.layer + 1)

    def _landed(self, started: deque[tuple[int, Lease, bool]]) -> list[tuple[int, Lease, bool]]:
        """Takes the first one, waited for, and those behind it that are there: at most half of the ring, so that the
        other half is filled meanwhile."""
        landed: list[tuple[int, Lease, bool]] = []
        while started and len(landed) < self._half:
            copy = started[0][1].copy
            if copy is not None:
                if landed and not copy.is_done:
                    break
                copy.wait(self._is_cancelled)
            landed.append(started.popleft())
        return landed

    def _fill(self, fetching: _Fetching) -> None:
        layer, cache = fetching.layer, self._cache
        while fetching.waiting and len(fetching.started) < fetching.width:
            expert = fetching.waiting.popleft()
            stays = expert in fetching.staying or not cache.is_absent(layer, expert)  # or is on its way to a slot
            lease = cache.claim_free(layer, expert) if stays else None
            fetching.started.append((expert, lease or self._load(layer, expert), lease is None))

    def _load(self, layer: int, expert: int) -> Lease:
        num_bytes = self._geometry.layers[layer].expert_bytes
        return self._ring.load(layer, expert, num_bytes, self._is_cancelled)

    def _reads_ahead(self, layer: int, num_fetched: int, num_tok: int) -> bool:
        """Whether nearly all experts of the next layer will be used: as of the layer before this one, where that said
        so; as of this one's absent ones; or, where all are resident, as an even routing would."""
        if layer in self._filled_ahead:
            return True
        shape = self._geometry.layers[layer]
        num_absent = sum(not self._cache.is_resident(layer, expert) for expert in range(shape.num_experts))
        if not num_absent:
            return num_tok * shape.top_k >= 2 * shape.num_experts
        return num_fetched >= _READ_AHEAD_SHARE * num_absent

    def _take_ahead(self, layer: int) -> dict[int, Lease]:
        self._filled_ahead.discard(layer)
        if self._ahead_layer != layer:
            return {}
        ahead, self._ahead, self._ahead_layer = self._ahead, {}, -1
        return ahead

    def _read_ahead(self, layer: int) -> None:
        """Loads the next layer's first absent experts into free slots of the ring, or all of them into slots that can
        hold all; where some of these are empty, they are for those that will probably be used most. Not the last
        layer's: it may be that only the last token goes through it."""
        cache = self._cache
        if layer >= self._geometry.num_layers - 1 or layer in self._filled_ahead:
            return
        if cache.holds_all(layer):
            self._fill_ahead(layer)
            return
        if cache.num_empty_slots(layer):
            self._fill_by_forecast(layer)
            return
        if self._ahead_layer != layer:
            cache.settle(layer)
            self._ahead_layer, self._ahead_end, self._num_ahead = layer, 0, 0
        absent = [expert for expert in cache.absent(layer) if expert >= self._ahead_end]
        for expert in absent[: min(self._ring.num_free, self._ring.num_slots - self._num_ahead)]:
            self._ahead[expert] = self._load(layer, expert)
            self._ahead_end = expert + 1
            self._num_ahead += 1

    def takes_forecast(self, layer: int) -> bool:
        """See ExpertPrefill: where some experts have to be chosen for empty slots."""
        is_read_ahead = 0 < layer < self._geometry.num_layers - 1
        return is_read_ahead and self._cache.num_empty_slots(layer) > 0 and not self._cache.holds_all(layer)

    def forecast(self, layer: int, by_use: Sequence[int]) -> None:
        """See ExpertPrefill."""
        self._forecast = layer, by_use

    def _fill_by_forecast(self, layer: int) -> None:
        """Loads what the layer will probably use, in the order in which it will: into the empty slots as many as these
        are, the most used ones; of the others the first into the ring."""
        forecast_layer, by_use = self._forecast
        self._forecast = -1, ()
        if forecast_layer != layer:
            return
        chosen = [expert for expert in by_use if self._cache.is_absent(layer, expert)]
        staying = frozenset(chosen[: self._cache.num_empty_slots(layer)])
        self._filled_ahead.add(layer)
        self._ahead_layer, room = layer, self._ring.num_free
        for expert in sorted(chosen):
            if expert in staying:
                self._cache.claim_free(layer, expert)
            elif len(self._ahead) < room:
                self._ahead[expert] = self._load(layer, expert)

    def _fill_ahead(self, layer: int) -> None:
        """Loads all experts of the next layer with absent ones, from `layer` on, whose slots can hold all of them: they
        are on their way while this layer is computed. Not the last layer's, see `_read_ahead`."""
        for ahead in range(layer, self._geometry.num_layers - 1):
            if not self._cache.holds_all(ahead):
                return
            if absent := self._cache.absent(ahead):
                self._filled_ahead.add(ahead)
                for expert in absent:
                    self._cache.claim_free(ahead, expert)
                return

    def abandon(self) -> None:
        """See ExpertPrefill."""
        for layer in self._filled_ahead:
            self._cache.release(layer)
        self._filled_ahead.clear()
        self._ahead, self._ahead_layer = {}, -1
        self._ring.free_all()
        self._cache.count_staged(self._ring.take_landed())
