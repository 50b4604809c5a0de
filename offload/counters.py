"""Counters of a layer's experts. Events are counted (monotonic); rates are derived, None without data.

Pure Python: snapshots cross the process boundary and are read by the user interface.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from operator import attrgetter


def ratio(numerator: float, denominator: float) -> float | None:
    """`numerator / denominator`, or None when there is nothing to divide by."""
    return numerator / denominator if denominator else None


@dataclass(slots=True)
class Counters:
    """Counters of one layer, or summed over layers. All monotonic.

    The expert cache counts in one object per layer and hands out copies (`snapshot`), which do not change.

    routed = resident_hits + prefetched_hits + late + cold_misses + capacity_misses + substituted.
    issued = useful + late_prefetches + wasted + cancelled + in_flight.
    """

    routed: int = 0
    """(token, expert) pairs the router chose in decode. An expert chosen twice for one token is one pair."""
    resident_hits: int = 0
    """The expert was on the device; the first use of a prefetched expert is counted below instead."""
    prefetched_hits: int = 0
    """First use of a prefetched expert that had landed."""
    late: int = 0
    """The expert was on its way (prefetch or fetch after substitution) when it was needed."""
    cold_misses: int = 0
    """Never resident since load."""
    capacity_misses: int = 0
    """Was resident once, and was evicted."""
    substituted: int = 0
    """A resident expert stood in for it (APPROX only)."""
    substituted_mass: float = 0.0
    """Routing weight carried by substitutes, summed; each token's routing weights count as 1 per layer."""
    prefetch_issued: int = 0
    prefetch_useful: int = 0
    prefetch_late: int = 0
    prefetch_wasted: int = 0
    """Evicted without ever having been used."""
    prefetch_cancelled: int = 0
    """Taken out of the queue before its copy began."""
    demand_loads: int = 0
    """Copies host -> device completed at demand priority in decode."""
    prefetch_loads: int = 0
    """Prefetches completed."""
    prefill_loads: int = 0
    """Copies completed for prefill, or to fill slots before their experts are asked for."""
    bytes_loaded: int = 0
    """Bytes of all those copies."""
    evictions: int = 0

    @property
    def hits(self) -> int:
        """Routed pairs that did not wait for the link: resident and prefetched hits."""
        return self.resident_hits + self.prefetched_hits

    @property
    def misses(self) -> int:
        """Routed pairs whose expert was absent and had to be copied."""
        return self.cold_misses + self.capacity_misses

    @property
    def loads(self) -> int:
        """Copies host -> device, for any purpose."""
        return self.demand_loads + self.prefetch_loads + self.prefill_loads

    @property
    def prefetch_in_flight(self) -> int:
        """Issued and not judged yet: queued, on the link, or landed and still unused."""
        judged = self.prefetch_useful + self.prefetch_late + self.prefetch_wasted + self.prefetch_cancelled
        return self.prefetch_issued - judged

    @property
    def hit_rate(self) -> float | None:
        """Hits over routed, in [0, 1]; None before any were routed."""
        return ratio(self.hits, self.routed)

    @property
    def substituted_rate(self) -> float | None:
        """Substitutions over routed, in [0, 1]; None before any were routed."""
        return ratio(self.substituted, self.routed)

    @property
    def availability_rate(self) -> float | None:
        """Effective availability: hits and substitutions over routed."""
        return ratio(self.hits + self.substituted, self.routed)

    def snapshot(self) -> Counters:
        """A copy, which does not change when this object counts on."""
        return Counters(*_values(self))

    def __sub__(self, earlier: Counters) -> Counters:
        """What happened between two snapshots of the same counters."""
        return Counters(*[now - before for now, before in zip(_values(self), _values(earlier), strict=True)])

    @staticmethod
    def total(parts: Iterable[Counters]) -> Counters:
        """The sum over layers."""
        return Counters(*map(sum, zip(*map(_values, parts), strict=True)))


_values = attrgetter(*(field.name for field in fields(Counters)))
"""The fields of a Counters as a tuple, in their order."""
