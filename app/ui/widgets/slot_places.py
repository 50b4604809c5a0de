"""Places of experts on the device, for a map by slot: an expert keeps its place until it leaves."""

from __future__ import annotations

from collections.abc import Sequence

from engine.events import HOST

_FREE = -1


class SlotPlaces:
    """A place is for looking at: it need not be the number of the slot in memory."""

    def __init__(self) -> None:
        self._places: list[list[int]] = []

    def rows(self, residency: Sequence[bytes], slots_per_layer: Sequence[int]) -> list[bytes]:
        """For each layer the codes of its slots, HOST where a slot is empty. Updates who has which place."""
        if len(self._places) != len(residency):
            self._places = [[] for _ in residency]
        return [
            self._row(places, codes, num_slots)
            for places, codes, num_slots in zip(self._places, residency, slots_per_layer, strict=True)
        ]

    def _row(self, places: list[int], codes: bytes, num_slots: int) -> bytes:
        held = {expert for expert, code in enumerate(codes) if code != HOST}
        places[:] = [expert if expert in held else _FREE for expert in places]
        places += [_FREE] * (num_slots - len(places))
        free = [place for place, expert in enumerate(places) if expert == _FREE]
        for expert in sorted(held.difference(places)):
            if free:
                places[free.pop(0)] = expert
            else:
                places.append(expert)
        while len(places) > num_slots and places[-1] == _FREE:
            places.pop()
        return bytes(HOST if expert == _FREE else codes[expert] for expert in places)
