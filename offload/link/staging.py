"""Prefill's own memory, apart from the decode slots: a ring of expert slots, or two buffers of a whole MoE layer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from offload.errors import ExpertReadError, OffloadError
from offload.geometry import Geometry, layer_buffer_bytes
from offload.link.expert_link import DEMAND, ExpertCopy, ExpertLink
from offload.link.lease import Lease
from offload.link.slot_pool import SlotPool


class _GivenBack:
    """Copies whose staging memory was given back before it was known whether they moved."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: list[ExpertCopy] = []

    def add(self, copies: Iterable[ExpertCopy]) -> None:
        self._open += copies

    def take(self) -> list[ExpertCopy]:
        """Remove and return those that landed. Failed and cancelled ones are dropped, those on the link are kept."""
        landed, still_open = [], []
        for copy in self._open:
            if not copy.is_done:
                still_open.append(copy)
            elif copy.error is None:
                landed.append(copy)
        self._open = still_open
        return landed


class StagingRing:
    """A few slots apart from the cache's: the next expert is copied while the last one is computed.

    One thread calls it. Slot numbers are the ring's own, 0..num_slots-1.
    """

    def __init__(self, num_slots: int, slot_bytes: int, link: ExpertLink) -> None:
        """Raises ValueError for fewer than two slots, with which nothing would overlap."""
        if num_slots < 2:
            raise ValueError(f"a staging ring of {num_slots} slots cannot overlap copy and compute")
        self._pool = SlotPool((num_slots,), (slot_bytes,))
        self._link = link
        self._free = list(reversed(range(num_slots)))
        self._copies: dict[int, ExpertCopy] = {}
        """Slots in use."""
        self._abandoned: dict[int, ExpertCopy] = {}
        """Slots given back while their copy was on the link."""
        self._given_back = _GivenBack()

    @property
    def num_slots(self) -> int:
        """Slots in the ring."""
        return self._pool.num_slots

    @property
    def num_free(self) -> int:
        """Slots that `load` can have; for some it waits until a copy that was given up has ended."""
        return len(self._free) + len(self._abandoned)

    @property
    def total_bytes(self) -> int:
        """Bytes allocated."""
        return self._pool.total_bytes

    def load(self, layer: int, expert: int, num_bytes: int, is_cancelled: Callable[[], bool] | None = None) -> Lease:
        """Queue an expert's copy into a free slot at demand priority, and lease the slot until `free`.

        May wait for a copy that was given up. Raises OffloadError when every slot is in use, ValueError when the expert
        is bigger than a slot, WaitCancelled.
        """
        if num_bytes > len(self._pool.memory(0)):
            raise ValueError(f"{num_bytes} bytes do not fit into a staging slot of {len(self._pool.memory(0))}")
        self._collect(is_cancelled)
        if not self._free:
            raise OffloadError("Every staging slot is in use.")
        slot = self._free[-1]
        copy = self._link.submit(layer, expert, self._pool.memory(slot)[:num_bytes], num_bytes, DEMAND)
        self._free.pop()
        self._copies[slot] = copy
        return Lease(slot, copy)

    def free(self, slot: int) -> None:
        """Give a slot back, whatever became of its copy. Raises KeyError when the slot is not in use."""
        copy = self._copies.pop(slot)
        self._given_back.add([copy])
        if copy.is_done or self._link.cancel(copy):
            self._free.append(slot)
        else:
            self._abandoned[slot] = copy

    def free_all(self) -> None:
        """Give back every slot in use: the way out after WaitCancelled or ExpertReadError."""
        for slot in list(self._copies):
            self.free(slot)

    def memory(self, slot: int) -> memoryview:
        """The slot's bytes."""
        return self._pool.memory(slot)

    def take_landed(self) -> list[ExpertCopy]:
        """The copies of slots given back that landed since the last call; each is returned once."""
        return self._given_back.take()

    def _collect(self, is_cancelled: Callable[[], bool] | None) -> None:
        """Take back slots whose abandoned copy has ended; wait for one if there is no other."""
        if not self._free and self._abandoned:
            with suppress(ExpertReadError):
                next(iter(self._abandoned.values())).wait(is_cancelled)
        for slot in [slot for slot, copy in self._abandoned.items() if copy.is_done]:
            del self._abandoned[slot]
            self._free.append(slot)


@dataclass(slots=True)
class _Buffer:
    """One of the two layer buffers."""

    layer: int | None = None
    """The MoE layer whose experts are in it or on their way; None: free."""
    copies: dict[int, ExpertCopy] = field(default_factory=dict)
    """By expert."""
    abandoned: list[ExpertCopy] = field(default_factory=list)
    """Copies of the layer before, given up while on the link."""


class LayerStaging:
    """Two buffers of one full MoE layer each: while layer l+1 computes, the one layer l has released loads layer l+2.

    After "MoE-CORE: Coordinated Expert Offload", section "Mechanism". The buffers are memory of their own, apart from
    each other and from the decode slots. By default a whole layer is loaded, so that a buffer does not depend on the
    cache; a caller that locks the resident experts and computes them in their slots leaves them out of `begin`. One
    thread calls it.
    """

    def __init__(self, geometry: Geometry, link: ExpertLink) -> None:
        self._shapes = geometry.layers
        self._pool = SlotPool((2,), (layer_buffer_bytes(geometry),))
        self._link = link
        self._buffers = (_Buffer(), _Buffer())
        self._given_back = _GivenBack()

    @property
    def total_bytes(self) -> int:
        """Bytes allocated; what `geometry.layer_staging_bytes` plans."""
        return self._pool.total_bytes

    @property
    def staged_layers(self) -> tuple[int, ...]:
        """Layers begun and not released."""
        return tuple(buffer.layer for buffer in self._buffers if buffer.layer is not None)

    def buffer_of(self, layer: int) -> int:
        """0 or 1: the buffer a begun layer is in. Raises KeyError for another layer."""
        for number, buffer in enumerate(self._buffers):
            if buffer.layer == layer:
                return number
        raise KeyError(f"layer {layer} is not staged")

    def begin(
        self, layer: int, experts: Iterable[int] | None = None, is_cancelled: Callable[[], bool] | None = None
    ) -> None:
        """Give a layer the free buffer and submit its experts at demand priority, by default all of them in order.

        Waits for copies on the link that were given up with the buffer's last layer. Raises OffloadError when both
        buffers are in use, ValueError when the layer is staged already, WaitCancelled.
        """
        if layer in self.staged_layers:
            raise ValueError(f"layer {layer} is staged already")
        buffer = next((buffer for buffer in self._buffers if buffer.layer is None), None)
        if buffer is None:
            raise OffloadError(f"Both staging buffers are in use, by the MoE layers {self.staged_layers}.")
        for copy in buffer.abandoned:
            with suppress(ExpertReadError):
                copy.wait(is_cancelled)
        buffer.abandoned.clear()
        buffer.layer = layer
        self.load(layer, range(self._shapes[layer].num_experts) if experts is None else experts)

    def load(self, layer: int, experts: Iterable[int]) -> None:
        """Submit more experts of a begun layer; those that were submitted before are left alone. Raises KeyError."""
        number = self.buffer_of(layer)
        copies, num_bytes = self._buffers[number].copies, self._shapes[layer].expert_bytes
        for expert in experts:
            if expert not in copies:
                memory = self._pool.memory(number)[self._place(layer, expert)]
                copies[expert] = self._link.submit(layer, expert, memory, num_bytes, DEMAND)

    def keep_only(self, layer: int, experts: Collection[int]) -> None:
        """Cancel the copies of a begun layer's other experts that have not started: no token is routed to them."""
        copies = self._buffers[self.buffer_of(layer)].copies
        for expert in [expert for expert in copies if expert not in experts and self._link.cancel(copies[expert])]:
            del copies[expert]

    def wait_expert(self, layer: int, expert: int, is_cancelled: Callable[[], bool] | None = None) -> float:
        """Wait until an expert is there; returns the seconds waited.

        Raises KeyError when it was not submitted, ExpertReadError, and WaitCancelled as `ExpertCopy.wait` does.
        """
        return self._buffers[self.buffer_of(layer)].copies[expert].wait(is_cancelled)

    def memory(self, layer: int, expert: int) -> memoryview:
        """The bytes of a begun layer's expert, valid until the layer is released."""
        return self._pool.memory(self.buffer_of(layer))[self._place(layer, expert)]

    def release(self, layer: int) -> None:
        """Free a layer's buffer, whatever became of its copies. Raises KeyError."""
        buffer = self._buffers[self.buffer_of(layer)]
        started = [copy for copy in buffer.copies.values() if not self._link.cancel(copy)]
        buffer.abandoned = [copy for copy in started if not copy.is_done]
        buffer.layer, buffer.copies = None, {}
        self._given_back.add(started)

    def take_landed(self) -> list[ExpertCopy]:
        """The copies of released layers that landed since the last call; each is returned once."""
        return self._given_back.take()

    def release_all(self) -> None:
        """Free both buffers: the way out after WaitCancelled or ExpertReadError."""
        for layer in self.staged_layers:
            self.release(layer)

    def _place(self, layer: int, expert: int) -> slice:
        shape = self._shapes[layer]
        start = expert * shape.slot_bytes
        return slice(start, start + shape.expert_bytes)
