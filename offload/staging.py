"""Prefill's own memory: experts stream through it one after the other, and the decode slots stay as they are."""

from __future__ import annotations

from contextlib import suppress

import torch

from offload.errors import ExpertReadError, OffloadError
from offload.link import PREFILL, Copy, Link
from offload.residency import Lease
from offload.slots import SlotPool


class StagingRing:
    """A few slots, physically apart from the cache's: the next expert is copied while the last one is computed.

    One thread calls it. Slot numbers are the ring's own, 0..num_slots-1.
    """

    def __init__(self, num_slots: int, slot_bytes: int, link: Link) -> None:
        """Raises ValueError for fewer than two slots, with which nothing would overlap."""
        if num_slots < 2:
            raise ValueError(f"a staging ring of {num_slots} slots cannot overlap copy and compute")
        self._pool = SlotPool((num_slots,), (slot_bytes,))
        self._link = link
        self._free = list(reversed(range(num_slots)))
        self._copies: dict[int, Copy] = {}
        """Slots in use."""
        self._abandoned: dict[int, Copy] = {}
        """Slots given back while their copy was on the link."""

    @property
    def num_slots(self) -> int:
        """Slots in the ring."""
        return self._pool.num_slots

    @property
    def num_free(self) -> int:
        """Slots that `load` can have, some of them perhaps only after a copy given up has ended."""
        return len(self._free) + len(self._abandoned)

    @property
    def total_bytes(self) -> int:
        """Bytes allocated."""
        return self._pool.total_bytes

    def load(self, layer: int, expert: int, num_bytes: int) -> Lease:
        """Send an expert on its way into a free slot, and lease it until `free`.

        May wait for a copy that was given up. Raises OffloadError when every slot is in use, ValueError when the expert
        is bigger than a slot.
        """
        if num_bytes > len(self._pool.memory(0)):
            raise ValueError(f"{num_bytes} bytes do not fit into a staging slot of {len(self._pool.memory(0))}")
        self._collect()
        if not self._free:
            raise OffloadError("Every staging slot is in use.")
        slot = self._free[-1]
        copy = self._link.submit(layer, expert, self._pool.memory(slot)[:num_bytes], num_bytes, PREFILL)
        self._free.pop()
        self._copies[slot] = copy
        return Lease(slot, copy)

    def free(self, slot: int) -> None:
        """Give a slot back, whatever became of its copy. Raises KeyError when the slot is not in use."""
        copy = self._copies.pop(slot)
        if copy.is_done or self._link.cancel(copy):
            self._free.append(slot)
        else:
            self._abandoned[slot] = copy

    def free_all(self) -> None:
        """Give back every slot in use: the way out after WaitCancelled or ExpertReadError."""
        for slot in list(self._copies):
            self.free(slot)

    def tensor(self, slot: int) -> torch.Tensor:
        """The slot as a uint8 tensor [slot_bytes]: a view."""
        return self._pool.tensor(slot)

    def _collect(self) -> None:
        """Take back slots whose abandoned copy has ended; wait for one if there is no other."""
        if not self._free and self._abandoned:
            with suppress(ExpertReadError):
                next(iter(self._abandoned.values())).wait()
        for slot in [slot for slot, copy in self._abandoned.items() if copy.is_done]:
            del self._abandoned[slot]
            self._free.append(slot)
