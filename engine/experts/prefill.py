"""How prefill gets the experts that are not resident. It evicts nothing from the decode slots.

Ring (`ring_prefill`): experts one after the other through a few staging slots; the next ones are copied while these are
computed. Full layer: two buffers of a whole MoE layer each; while layer l+1 computes, the buffer that layer l has
released loads layer l+2. After "MoE-CORE: Coordinated Expert Offload", "Mechanism": full-layer staging from floor(K_l /
k_l) tokens on, selected experts only below. On either path empty decode slots are filled first.

Whether a model has the ring or full layers is decided by the budget (`offload.budget`) or the configuration; full layer
or selected experts, by `LayerPrefill.is_full_layer` for every chunk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple, Protocol

from offload.geometry import Geometry
from offload.link.lease import Lease
from offload.link.staging import LayerStaging
from offload.residency.cache import ExpertCache

RING, FULL_LAYER, SELECTIVE = "one expert at a time", "full layers, double-buffered", "selected experts only"
"""The paths, as the user reads them."""


class Fetched(NamedTuple):
    """An expert ready to be computed: in a decode slot, or in staging memory; the other one is None."""

    expert: int
    slot: int | None
    staged: memoryview | None
    """Its bytes, valid until the next experts are asked for."""


class ExpertPrefill(Protocol):
    """Brings absent experts to the device for one layer's prefill."""

    served: Counter[str]
    """How many layers' prefills took which path, since load."""

    def fetch(
        self, layer: int, experts: Sequence[int], by_use: Sequence[int], num_tok: int
    ) -> Generator[list[Fetched]]:
        """Submits the first copies, and yields `experts` (absent ones) in their order: those that can be computed, at
        least one. `by_use`: the same ones, most used first: these stay where decode slots are empty. Read to the end,
        or call `abandon`.

        Raises WaitCancelled, ExpertReadError; copies on their way are given up then.
        """
        ...

    def takes_forecast(self, layer: int) -> bool:
        """Whether `forecast` for this layer would be of use now."""
        ...

    def forecast(self, layer: int, by_use: Sequence[int]) -> None:
        """The experts that a later layer will probably use, most used first; told while the layer before it runs."""
        ...

    def abandon(self) -> None:
        """Gives up the copies on their way, after a forward that ended early."""
        ...


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
        return num_tok >= self.switch_tok[layer] and not self._cache.num_empty_slots(layer)

    def fetch(
        self, layer: int, experts: Sequence[int], by_use: Sequence[int], num_tok: int
    ) -> Generator[list[Fetched]]:
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

    def takes_forecast(self, layer: int) -> bool:
        """See ExpertPrefill: whole layers are staged without one."""
        return False

    def forecast(self, layer: int, by_use: Sequence[int]) -> None:
        """See ExpertPrefill."""

    def _arriving(
        self, layer: int, experts: Sequence[int], claimed: dict[int, Lease], num_tok: int
    ) -> Generator[list[Fetched]]:
        try:
            for expert in experts:
                lease = claimed.get(expert)
                if lease is None:
                    self._staging.wait_expert(layer, expert, self._is_cancelled)
                    yield [Fetched(expert, None, self._staging.memory(layer, expert))]
                    continue
                if lease.copy is not None:
                    lease.copy.wait(self._is_cancelled)
                yield [Fetched(expert, lease.slot, None)]
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
