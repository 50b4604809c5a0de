"""The expected gain of a prefetch, in seconds: also a copy that is only partly hidden may be worth it.

Model. The link copies one expert after the other, the demand copies queued now first. A prefetch for the layer j layers
ahead starts at s and takes c; the routing of the layers between here and there is known at w_1 < ... < w_j. A layer
that waits for demand copies delays the routing of later layers, which gives queued prefetches more time. Then, with p
the probability that the expert is used:

- saved wait: p x h x c, with the hidden share h = the part of the copy done by w_j, clamp((w_j - s) / c, 0, 1). What
  has not started by w_j is promoted or cancelled: it saves nothing, and costs nothing.
- delay: a copy on the link when routing becomes known keeps demand copies waiting until it ends, s + c - w. That costs
  q x (s + c - w_i) at each w_i inside the copy, q being the probability that a layer has a demand copy at all. At w_j
  it is a delay only if the expert is not used, so times 1 - p: else it is the wait for that very expert.
- eviction: an expert not used has taken another one's slot. That costs (1 - p) x v x c, v being the additional copies
  that a layer makes, on average, with one slot less.

A further copy is taken while what it saves exceeds what it costs. The delay and the eviction terms are ours; the paper
("MoE-CORE: Coordinated Expert Offload", section "Mechanism") takes copies that are hidden altogether.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GainModel:
    """The two cost parameters of a prefetch."""

    demand_probability: float = 0.5
    """q: that a layer has a demand copy, in [0, 1]."""
    victim_loads: float = 0.2
    """v: additional copies with one slot less; k times the slope of the layer's hit-rate curve where it stands."""

    def __post_init__(self) -> None:
        if not 0 <= self.demand_probability <= 1 or self.victim_loads < 0:
            raise ValueError(f"impossible prices of a prefetch: {self}")

    def net_gain_s(self, probability: float, start_s: float, copy_s: float, routing_known_s: Sequence[float]) -> float:
        """Expected seconds saved by a prefetch that starts at `start_s`, its costs subtracted.

        `routing_known_s`: of the layers up to the expert's own, which is the last. At most 0 when the copy would not
        have started by then.
        """
        due_s, end_s = routing_known_s[-1], start_s + copy_s
        hidden_s = min(max(due_s - start_s, 0.0), copy_s)
        if hidden_s <= 0:
            return 0.0
        delay_s = sum(end_s - known_s for known_s in routing_known_s[:-1] if start_s < known_s < end_s)
        delay_s += (1 - probability) * max(0.0, end_s - due_s)
        cost_s = self.demand_probability * delay_s + (1 - probability) * self.victim_loads * copy_s
        return probability * hidden_s - cost_s
