"""A link without threads, whose copies move by chance, and a log of what any link was asked for."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from offload.errors import ExpertReadError, WaitCancelled
from offload.link.expert_link import DEMAND, PREFETCH
from offload.link.link import Link


class Name(NamedTuple):
    """An expert of a layer."""

    layer: int
    expert: int

    def content(self, num_bytes: int) -> bytes:
        """What its slot must hold: a pattern that no other expert has."""
        return bytes([self.layer + 1, self.expert + 1]) * (num_bytes // 2)


@dataclass(eq=False)
class WanderingCopy:
    """As `offload.link.link.Copy`."""

    link: WanderingLink
    name: Name
    destination: memoryview
    num_bytes: int
    priority: int
    moved_bytes: int = 0
    is_started: bool = False
    is_done: bool = False
    error: ExpertReadError | None = None

    @property
    def layer(self) -> int:
        return self.name.layer

    @property
    def expert(self) -> int:
        return self.name.expert

    def wait(self, is_cancelled: Callable[[], bool] | None = None) -> float:
        while not self.is_done:
            if is_cancelled is not None and is_cancelled():
                raise WaitCancelled("Stopped.")
            self.link.move()
        if self.error:
            raise self.error
        return 0.0


class WanderingLink:
    """Two lanes; demand first, and otherwise by chance. A slot's old bytes are gone once a copy into it starts."""

    bytes_per_s = None

    def __init__(self, seed: int, stored: Callable[[int, int, int], bytes] | None = None) -> None:
        """`stored(layer, expert, num_bytes)`: an expert's bytes; by default a pattern of its own."""
        self._stored = stored or (lambda layer, expert, num_bytes: Name(layer, expert).content(num_bytes))
        self.eta_s: float | None = None
        """What every copy's ETA is said to be."""
        self.failing: set[tuple[int, int]] = set()
        self._queue: list[WanderingCopy] = []
        self._active: list[WanderingCopy] = []
        self._chance = random.Random(seed)

    def submit(self, layer: int, expert: int, destination: memoryview, num_bytes: int, priority: int) -> WanderingCopy:
        copy = WanderingCopy(self, Name(layer, expert), destination, num_bytes, priority)
        pending = [*self._active, *self._queue]
        is_taken = any(_is_same_memory(destination, other.destination) for other in pending)
        assert not is_taken, "memory with a copy on its way was given away"
        self._queue.append(copy)
        return copy

    def promote(self, copy: WanderingCopy) -> bool:
        if copy.is_started or copy.priority != PREFETCH:
            return False
        copy.priority = DEMAND
        self._queue.remove(copy)
        self._queue.append(copy)
        return True

    def cancel(self, copy: WanderingCopy) -> bool:
        if copy not in self._queue:
            return False
        self._queue.remove(copy)
        copy.error, copy.is_done = ExpertReadError("The copy was cancelled before it began."), True
        return True

    def move(self) -> None:
        """One copy starts, or one ends."""
        if self._queue and len(self._active) < 2 and (not self._active or self._chance.random() < 0.5):
            copy = min(self._queue, key=lambda queued: queued.priority == PREFETCH)
            self._queue.remove(copy)
            self._active.append(copy)
            copy.is_started = True
            copy.destination[:] = b"\xff" * len(copy.destination)
        elif self._active:
            self._end(self._active.pop(self._chance.randrange(len(self._active))))

    def demand_eta_s(self, copy: WanderingCopy) -> float | None:
        return self.eta_s

    @property
    def queued(self) -> int:
        return len(self._queue)

    def _end(self, copy: WanderingCopy) -> None:
        if copy.name in self.failing:
            copy.error = ExpertReadError("The disk is gone.")
        else:
            copy.destination[:] = self._stored(copy.layer, copy.expert, copy.num_bytes)
            copy.moved_bytes = copy.num_bytes
        copy.is_done = True


def drain(link: WanderingLink | Link) -> None:
    """Wait until nothing is queued and nothing on its way."""
    end_s = time.monotonic() + 30
    while link.queued or link._active:
        assert time.monotonic() < end_s, "the link has work left"
        if isinstance(link, WanderingLink):
            link.move()
        else:
            time.sleep(0.0005)


def _is_same_memory(one: memoryview, other: memoryview) -> bool:
    """Writing through one shows in the other. Places are apart, or begin together."""
    if one.obj is not other.obj:
        return False
    before = one[0]
    one[0] = before ^ 1
    is_same = other[0] == before ^ 1
    one[0] = before
    return is_same and other[0] == before


@dataclass(eq=False)
class Entry:
    """A copy that was asked for, and what became of what it brought."""

    name: Name
    copy: Any
    memory: object
    """Whose part the destination is."""
    was_prefetch: bool
    is_late: bool = False
    """A step met it on its way."""
    is_used: bool = False
    """A step used the expert it had brought."""
    is_taken_back: bool = False

    @property
    def has_landed(self) -> bool:
        return self.copy.is_done and self.copy.error is None

    @property
    def is_unused_prefetch(self) -> bool:
        return self.was_prefetch and not self.is_late and not self.is_used


class LoggedLink:
    """Any link, with an entry for every copy in the order they were asked for."""

    def __init__(self, link: Any) -> None:
        self.link = link
        self.entries: list[Entry] = []

    def submit(self, layer: int, expert: int, destination: memoryview, num_bytes: int, priority: int) -> Any:
        copy = self.link.submit(layer, expert, destination, num_bytes, priority)
        self.entries.append(Entry(Name(layer, expert), copy, destination.obj, priority == PREFETCH))
        return copy

    def promote(self, copy: Any) -> bool:
        is_promoted: bool = self.link.promote(copy)
        return is_promoted

    def cancel(self, copy: Any) -> bool:
        is_cancelled: bool = self.link.cancel(copy)
        if is_cancelled:
            self.entry_of(copy).is_taken_back = True
        return is_cancelled

    def entry_of(self, copy: Any) -> Entry:
        return next(entry for entry in reversed(self.entries) if entry.copy is copy)
