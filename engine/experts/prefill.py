"""How prefill gets the experts that are not resident. It evicts nothing from the decode slots.

Ring: experts one after the other through a few staging slots; the next ones are copied while this one is computed. Full
layer: two buffers of a whole MoE layer each; while layer l+1 computes, the buffer that layer l has released loads layer
l+2. After "MoE-CORE: Coordinated Expert Offload", "Mechanism": full-layer staging from floor(K_l / k_l) tokens on,
selected experts only below. On either path empty decode slots are filled first.

Whether a model has the ring or full layers is decided by the budget (`offload.budget`) or the configuration; full layer
or selected experts, by `LayerPrefill.is_full_layer` for every chunk.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from offload.geometry import Geometry
from offload.link.lease import Lease
from offload.link.staging import LayerStaging, StagingRing
from offload.residency.cache import ExpertCache

RING, FULL_LAYER, SELECTIVE = "one expert at a time", "full layers, double-buffered", "selected experts only"
"""The paths, as the user reads them."""
_READ_AHEAD_SHARE = 0.8
"""Of a layer's absent experts that are used, from which on the next layer's are read before its routing is known."""


class Fetched(NamedTuple):
    """An expert ready to be computed: in a decode slot, or in staging memory; the other one is None."""

    expert: int
    slot: int | None
    staged: memoryview | None
    """Its bytes, valid until the next expert is asked for."""


class ExpertPrefill(Protocol):
    """Brings absent experts to the device for one layer's prefill."""

    served: Counter[str]
    """How many layers' prefills took which path, since load."""

    def fetch(self, layer: int, experts: Sequence[int], by_use: Sequence[int], num_tok: int) -> Generator[Fetched]:
        """Submits the first copies, and yields each of `experts` (absent ones) in their order, once it can be
        computed. `by_use`: the same ones, most used first: these stay where decode slots are empty. Read to the end, or
        call `abandon`.

        Raises WaitCancelled, ExpertReadError; copies on their way are given up then.
        """
        ...

    def abandon(self) -> None:
        """Gives up the copies on their way, after a forward that ended early."""
        ...


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
        self.served: Counter[str] = Counter()
        self._ahead_layer, self._ahead_end, self._num_ahead = -1, 0, 0
        """The layer whose experts are read before its routing is known, up to which one, and how many those are."""
        self._ahead: dict[int, Lease] = {}
        """Those of them, in the ring or on their way there."""
        self._filled_ahead: set[int] = set()
        """Later layers whose experts are on their way to their slots, which are locked."""

    def fetch(self, layer: int, experts: Sequence[int], by_use: Sequence[int], num_tok: int) -> Generator[Fetched]:
        """See ExpertPrefill."""
        self.served[RING] += 1
        ahead, reads_ahead = self._take_ahead(layer), self._reads_ahead(layer, len(experts), num_tok)
        unread = [expert for expert in by_use if expert not in ahead and self._cache.is_absent(layer, expert)]
        staying = frozenset(unread[: self._cache.num_empty_slots(layer)])
        width = len(experts) if not ahead and len(staying) == len(unread) else self._ring.num_slots
        fetching = _Fetching(layer, deque(experts), staying, width, reads_ahead)
        while fetching.waiting and fetching.waiting[0] in ahead:  # in another order they would block the ring
            expert = fetching.waiting.popleft()
            fetching.started.append((expert, ahead.pop(expert), True))
        for lease in ahead.values():
            self._ring.free(lease.slot)
        self._fill(fetching)
        if reads_ahead and not fetching.waiting and self._cache.holds_all(layer):
            self._fill_ahead(layer + 1)
        return self._arriving(fetching)

    def _arriving(self, fetching: _Fetching) -> Generator[Fetched]:
        ring, started, is_read = self._ring, fetching.started, False
        try:
            while fetching.waiting or started:
                if len(started) <= ring.num_slots - max(ring.num_slots // 2, 1):
                    self._fill(fetching)
                    if fetching.reads_ahead and not fetching.waiting:
                        self._read_ahead(fetching.layer + 1)
                expert, lease, is_staged = started.popleft()
                if lease.copy is not None:
                    lease.copy.wait(self._is_cancelled)
                if is_staged:
                    yield Fetched(expert, None, ring.memory(lease.slot))
                    ring.free(lease.slot)
                else:
                    yield Fetched(expert, lease.slot, None)
            is_read = True
        finally:
            if is_read:
                self._cache.count_staged(ring.take_landed())
            else:
                self.abandon()

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
        """Whether nearly all experts of the next layer will be used: as of this one's absent ones, or, where all are
        resident, as an even routing would."""
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
        hold all; where some of these are empty, they are kept for the most used experts, which are not known yet. Not
        the last layer's: it may be that only the last token goes through it."""
        cache = self._cache
        if layer >= self._geometry.num_layers - 1:
            return
        if cache.holds_all(layer):
            if layer not in self._filled_ahead:
                self._fill_ahead(layer)
            return
        if cache.has_empty_slot(layer):
            return
        if self._ahead_layer != layer:
            cache.settle(layer)
            self._ahead_layer, self._ahead_end, self._num_ahead = layer, 0, 0
        absent = [expert for expert in cache.absent(layer) if expert >= self._ahead_end]
        for expert in absent[: min(self._ring.num_free, self._ring.num_slots - self._num_ahead)]:
            self._ahead[expert] = self._load(layer, expert)
            self._ahead_end = expert + 1
            self._num_ahead += 1

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


class LayerPrefill:
    """Whole layers in two buffers for chunks that are long enough; the selected experts only for shorter ones."""

    def __init__(
        self, cache: ExpertCache, staging: LayerStaging, geometry: Geometry, is_cancelled: Callable[[], bool]
    ) -> None:
        self._cache, self._staging, self._geometry, self._is_cancelled = cache, staging, geometry, is_cancelled
        slots = cache.slots_per_layer
        self.switch_tok = [n // layer.top_k for n, layer in zip(slots, geometry.layers, strict=True)]
        """Per layer, the tokens from which it is staged whole: floor(K_l / k_l)."""
        self.served: Counter[str] = Counter()

    def is_full_layer(self, layer: int, num_tok: int) -> bool:
        """Whether a chunk of so many tokens is served by staging the whole layer: from floor(K_l / k_l) on."""
        return num_tok >= self.switch_tok[layer] and not self._cache.has_empty_slot(layer)

    def fetch(self, layer: int, experts: Sequence[int], by_use: Sequence[int], num_tok: int) -> Generator[Fetched]:
        """See ExpertPrefill."""
        is_full = self.is_full_layer(layer, num_tok)
        self.served[FULL_LAYER if is_full else SELECTIVE] += 1
        try:
            claimed = self._claim(layer, by_use)
            self._stage(layer, [expert for expert in experts if expert not in claimed])
            self._stage_ahead(layer + 1, num_tok)
        except BaseException:
            self.abandon()
            raise
        return self._arriving(layer, experts, claimed, num_tok)

    def _arriving(
        self, layer: int, experts: Sequence[int], claimed: dict[int, Lease], num_tok: int
    ) -> Generator[Fetched]:
        try:
            for expert in experts:
                lease = claimed.get(expert)
                if lease is None:
                    self._staging.wait_expert(layer, expert, self._is_cancelled)
                    yield Fetched(expert, None, self._staging.memory(layer, expert))
                    continue
                if lease.copy is not None:
                    lease.copy.wait(self._is_cancelled)
                yield Fetched(expert, lease.slot, None)
            self._release(layer)
            self._stage_ahead(layer + 2, num_tok)
        except BaseException:
            self.abandon()
            raise

    def _claim(self, layer: int, experts: Sequence[int]) -> dict[int, Lease]:
        """Fills empty decode slots, unless the layer is staged already."""
        if layer in self._staging.staged_layers:
            return {}
        leases = {expert: self._cache.claim_free(layer, expert) for expert in experts}
        return {expert: lease for expert, lease in leases.items() if lease is not None}

    def _stage(self, layer: int, experts: Sequence[int]) -> None:
        if layer in self._staging.staged_layers:
            self._staging.keep_only(layer, experts)
            self._staging.load(layer, experts)
        else:
            self._staging.begin(layer, experts, self._is_cancelled)

    def _stage_ahead(self, layer: int, num_tok: int) -> None:
        """Stages the experts of a later layer that are not resident, before its routing is known."""
        if layer >= self._geometry.num_layers or layer in self._staging.staged_layers:
            return
        if self.is_full_layer(layer, num_tok):
            self._cache.settle(layer)
            experts = range(self._geometry.layers[layer].num_experts)
            absent = [expert for expert in experts if self._cache.is_absent(layer, expert)]
            self._staging.begin(layer, absent, self._is_cancelled)

    def _release(self, layer: int) -> None:
        self._staging.release(layer)
        self._cache.count_staged(self._staging.take_landed())

    def abandon(self) -> None:
        """See ExpertPrefill. Nothing stays staged; copies that landed are counted, those on the link once they land."""
        self._staging.release_all()
        self._cache.count_staged(self._staging.take_landed())
