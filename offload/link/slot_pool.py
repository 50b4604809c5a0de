"""The device tier: memory for experts, allocated once, touched, never grown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from offload.geometry import PAGE_BYTES, page_aligned_bytes, pool_bytes
from offload.page_memory import advise_huge_pages, zero_pages

__all__ = ["SlotPool", "page_aligned_bytes"]


class SlotPool:
    """A fixed set of slots in groups; every slot starts on a page boundary. Slot numbers are global: 0..num_slots-1.

    The memory is one numpy array, which lives as long as any view of it, tensors included (an `mmap` closed under a
    live view would be a segfault at the next read). All of it is written once here, so that its pages exist before the
    first token.
    """

    def __init__(self, group_slots: Sequence[int], group_slot_bytes: Sequence[int]) -> None:
        """`group_slots[g]` slots of `group_slot_bytes[g]` bytes each.

        Raises MemoryError when the system refuses the memory.
        """
        shape = tuple(group_slots), tuple(group_slot_bytes)
        self._total_bytes = pool_bytes(*shape)
        memory = np.empty(self._total_bytes, dtype=np.uint8)
        address = int(memory.ctypes.data)
        advise_huge_pages(address, self._total_bytes)
        zero_pages(address, self._total_bytes)
        start = -address % PAGE_BYTES
        whole = memoryview(memory)  # type: ignore[arg-type]  # numpy's stubs know buffers from Python 3.12 on
        self._groups: list[range] = []
        self._memories: list[memoryview] = []
        for num_slots, slot_bytes in zip(*shape, strict=True):
            first = len(self._memories)
            self._groups.append(range(first, first + num_slots))
            for _ in range(num_slots):
                self._memories.append(whole[start : start + slot_bytes])
                start += page_aligned_bytes(slot_bytes)

    @property
    def num_slots(self) -> int:
        """Slots over all groups."""
        return len(self._memories)

    @property
    def num_groups(self) -> int:
        """Groups, as given."""
        return len(self._groups)

    @property
    def total_bytes(self) -> int:
        """Bytes allocated, padding included; what `geometry.pool_bytes` plans."""
        return self._total_bytes

    def slots_of(self, group: int) -> range:
        """The slot numbers of a group."""
        return self._groups[group]

    def memories(self, slots: range) -> Mapping[int, memoryview]:
        """Some slots by their numbers, without a dictionary of them."""
        return _SlotMemories(self._memories, slots)

    def memory(self, slot: int) -> memoryview:
        """The slot's bytes, writable: always the same object."""
        return self._memories[slot]


class _SlotMemories(Mapping[int, memoryview]):
    def __init__(self, memories: Sequence[memoryview], slots: range) -> None:
        self._memories, self._slots = memories, slots

    def __getitem__(self, slot: int) -> memoryview:
        if slot not in self._slots:
            raise KeyError(slot)
        return self._memories[slot]

    def __iter__(self) -> Iterator[int]:
        return iter(self._slots)

    def __len__(self) -> int:
        return len(self._slots)
