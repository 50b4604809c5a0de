"""What one may ask of the expert cache, without changing it."""

from __future__ import annotations

from collections.abc import Collection

from offload.counters import Counters
from offload.link.link import Copy
from offload.residency.books import IN_USE, SUBSTITUTE
from offload.residency.integrity import check_books
from offload.residency.shelves import Shelves


class CacheView:
    """The books, read; as they were last settled. `layer` is a MoE-layer index."""

    def __init__(self, shelves: Shelves) -> None:
        self._shelves = shelves
        self._layers = shelves.layers

    def has_empty_slot(self, layer: int) -> bool:
        """Whether the layer's group has a slot that is neither taken nor awaited."""
        return bool(self._layers[layer].group.free)

    def slot_of(self, layer: int, expert: int) -> int | None:
        """The slot a resident expert is in, else None."""
        slot = self._layers[layer].slot_of[expert]
        return slot if slot >= 0 else None

    def is_resident(self, layer: int, expert: int) -> bool:
        """Whether the expert is on the device."""
        return self._layers[layer].slot_of[expert] >= 0

    def is_absent(self, layer: int, expert: int) -> bool:
        """Whether the expert is neither on the device nor on its way."""
        book = self._layers[layer]
        return book.slot_of[expert] < 0 and expert not in book.arrivals

    def copy_of(self, layer: int, expert: int) -> Copy | None:
        """The copy of an expert on its way, else None."""
        arrival = self._layers[layer].arrivals.get(expert)
        return arrival.copy if arrival is not None else None

    def residents(self) -> tuple[tuple[int, ...], ...]:
        """Per layer, the experts on the device, in order."""
        return tuple(tuple(expert for expert, slot in enumerate(book.slot_of) if slot >= 0) for book in self._layers)

    def num_arriving(self, layer: int) -> int:
        """Experts of the layer on their way."""
        return len(self._layers[layer].arrivals)

    @property
    def slots_per_layer(self) -> tuple[int, ...]:
        """Slots of each layer's group (layers that share a group share its slots)."""
        return tuple(len(book.group.slots) for book in self._layers)

    def counters(self, layer: int) -> Counters:
        """What was counted in a layer since load."""
        return self._layers[layer].tally.snapshot()

    def total_counters(self) -> Counters:
        """What was counted since load, over all layers."""
        return Counters.total(book.tally.snapshot() for book in self._layers)

    def residency_codes(self, layer: int, in_use: Collection[int] = (), substitutes: Collection[int] = ()) -> bytes:
        """One code per expert, as the engine's snapshot shows them; `in_use` and `substitutes` overlay the books."""
        codes = self._layers[layer].codes[:]
        for expert in in_use:
            codes[expert] = IN_USE
        for expert in substitutes:
            codes[expert] = SUBSTITUTE
        return bytes(codes)

    def check_integrity(self) -> None:
        """Raise AssertionError, saying what is wrong, unless slots, states, locks and counts agree."""
        check_books(self._shelves.groups)
