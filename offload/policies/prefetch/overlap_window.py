"""The overlap window: the time in which copies are hidden by compute, measured online from times that are passed in.

After "MoE-CORE: Coordinated Expert Offload", section "Mechanism": before layer l+1's routing is known there are the
remaining compute of layer l and the attention of layer l+1, minus the launch overhead.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from statistics import median

from offload.geometry import Geometry

_HISTORY = 9
"""Values of a running median: a single outlier does not change it."""


@dataclass(frozen=True, slots=True)
class Window:
    """What the link can do from now on, while layer l computes. Seconds."""

    overlap_s: float
    """The paper's window: remaining compute of l + attention of l+1 - launch overhead, without waits for copies."""
    routing_known_s: tuple[float, ...]
    """When the routing of layers l+1, l+2, ... will be known: from now, ascending. Assumes that layer l waits for
    the queued demand copies, and that later layers wait for nothing."""
    copy_s: tuple[float, ...]
    """What one expert of layers l+1, l+2, ... takes on the link by itself."""
    demand_queued_s: float
    """Demand copies queued before any prefetch."""
    prefetch_queued_s: float = 0.0
    """Prefetches queued earlier, or on the link, for layers further ahead."""

    def depth_floor(self) -> int:
        """Experts of layer l+1 whose copies are hidden altogether, the paper's depth.

        floor((remaining compute of l + attention of l+1 - launch overhead - demand copies queued) x bandwidth / expert
        bytes), at least 0 ("MoE-CORE: Coordinated Expert Offload", section "Mechanism"; the queued demand copies are
        ours).
        """
        return max(0, math.floor((self.overlap_s - self.demand_queued_s) / self.copy_s[0]))


class _Median:
    """A running median; None before the first value."""

    __slots__ = ("_values", "value")

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=_HISTORY)
        self.value: float | None = None

    def add(self, value: float) -> None:
        self._values.append(value)
        self.value = median(self._values)


class OverlapWindow:
    """Estimates windows. One thread calls it; an observation costs about a microsecond."""

    def __init__(self, geometry: Geometry, launch_overhead_s: float = 0.0, expert_compute_s: float = 0.0) -> None:
        """`launch_overhead_s`: from the decision to the start of a copy, for all copies of a layer together.

        `expert_compute_s`: what a layer still has to do when its last demand copy has landed.
        """
        self.launch_overhead_s = launch_overhead_s
        self.expert_compute_s = expert_compute_s
        self._expert_bytes = [layer.expert_bytes for layer in geometry.layers]
        self._compute_s = [_Median() for _ in geometry.layers]
        self._attention_s = [_Median() for _ in geometry.layers]
        self._bytes_per_s: float | None = None

    def observe_compute(self, layer: int, seconds: float) -> None:
        """From the moment `window(layer)` is asked for to the layer's end, without waits for the link."""
        self._compute_s[layer].add(seconds)

    def observe_attention(self, layer: int, seconds: float) -> None:
        """From the end of the MoE layer before to the moment the layer's routing is known (dense layers included)."""
        self._attention_s[layer].add(seconds)

    def observe_bandwidth(self, bytes_per_s: float | None) -> None:
        """What the link moves, over all its threads; None: not known yet, and no change."""
        if bytes_per_s is not None and bytes_per_s > 0:
            self._bytes_per_s = bytes_per_s

    def window(
        self, layer: int, *, demand_bytes: int = 0, prefetch_bytes: int = 0, num_layers_ahead: int = 1
    ) -> Window | None:
        """The window that opens now that `layer`'s routing is known and its misses are queued.

        `demand_bytes`: still to be copied of what the layer waits for, prefetches that are late among them;
        `prefetch_bytes`: of everything else on the link or queued. Covers up to `num_layers_ahead` layers. None: it is
        the last layer, or something was not measured yet.
        """
        rate = self._bytes_per_s
        last = min(layer + num_layers_ahead, len(self._expert_bytes) - 1)
        if rate is None or last <= layer:
            return None
        demand_s = demand_bytes / rate
        overlap_s, known_s, elapsed_s = 0.0, [], -self.launch_overhead_s
        for at in range(layer, last):
            compute_s, attention_s = self._compute_s[at].value, self._attention_s[at + 1].value
            if compute_s is None or attention_s is None:
                break
            if at == layer:
                overlap_s = elapsed_s + compute_s + attention_s
                if demand_bytes:
                    compute_s = max(compute_s, demand_s + self.expert_compute_s)
            elapsed_s += compute_s + attention_s
            known_s.append(elapsed_s)
        if not known_s:
            return None
        copy_s = tuple(self._expert_bytes[layer + 1 + at] / rate for at in range(len(known_s)))
        return Window(overlap_s, tuple(known_s), copy_s, demand_s, prefetch_bytes / rate)
