"""Load on demand: MoE-CORE's baseline. A miss is copied when its gate is known, and nothing earlier."""

from __future__ import annotations

from offload.strategy.bundle import RING, Strategy

STRATEGY = Strategy(
    name="on-demand",
    meaning="load what is missing, least recently used goes; the paper's baseline",
    prefill=RING,
    slots="uniform",
    eviction="lru",
    prefetch="none",
)
