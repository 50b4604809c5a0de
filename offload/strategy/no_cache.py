"""No cache: DuoServe-MoE's baseline. The device holds the experts of one step."""

from __future__ import annotations

from offload.strategy.bundle import RING, Strategy

STRATEGY = Strategy(
    name="no-cache",
    meaning="one step's experts and no more; every step loads its own",
    prefill=RING,
    slots="one-step",
    eviction="keep-none",
    prefetch="none",
)
