"""What the expert cache, staging and prefetching need of a link; `Link` and `VirtualLink` implement it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from offload.errors import ExpertReadError

DEMAND: Final = 0
"""Priority of a copy that a forward waits for."""
PREFETCH: Final = 1
"""Priority of a copy that starts only when no DEMAND copy is queued."""


class ExpertCopy(Protocol):
    """One expert's copy into a slot. Mutated by the link; nothing changes once `is_done` is set."""

    @property
    def layer(self) -> int:
        """MoE-layer index."""
        ...

    @property
    def expert(self) -> int:
        """The expert's number in its layer."""
        ...

    @property
    def num_bytes(self) -> int:
        """Bytes of the slot that the copy fills."""
        ...

    @property
    def priority(self) -> int:
        """DEMAND or PREFETCH; fixed once the copy has started."""
        ...

    @property
    def moved_bytes(self) -> int:
        """Bytes moved; 0 until done."""
        ...

    @property
    def is_started(self) -> bool:
        """Whether the slot's old bytes may be gone."""
        ...

    @property
    def is_done(self) -> bool:
        """Landed, failed or cancelled."""
        ...

    @property
    def error(self) -> ExpertReadError | None:
        """Why the copy failed or was cancelled; None while it runs and when it landed."""
        ...

    def wait(self, is_cancelled: Callable[[], bool] | None = None) -> float:
        """Wait until done and return the seconds waited. Raises ExpertReadError, WaitCancelled."""
        ...


class ExpertLink(Protocol):
    """Copies experts into slots, DEMAND before PREFETCH, in the order of submission within a priority."""

    @property
    def bytes_per_s(self) -> float | None:
        """Measured bandwidth; None before the first copy."""
        ...

    def submit(self, layer: int, expert: int, destination: memoryview, num_bytes: int, priority: int) -> ExpertCopy:
        """Queue a copy of an expert into `destination`. Raises RuntimeError on a closed link."""
        ...

    def promote(self, copy: ExpertCopy) -> bool:
        """Move a queued PREFETCH copy to the end of the DEMAND queue. False: it has started or is DEMAND already."""
        ...

    def cancel(self, copy: ExpertCopy) -> bool:
        """Take a copy out of the queue. True: it had not started and never will, and its destination is untouched."""
        ...

    def demand_eta_s(self, copy: ExpertCopy) -> float | None:
        """Seconds until `copy` is done if it is promoted now; None before a bandwidth is known. Changes nothing."""
        ...
