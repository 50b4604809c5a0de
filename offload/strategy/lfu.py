"""Least frequently used, for comparisons."""

from __future__ import annotations

from offload.strategy.bundle import RING, Strategy

STRATEGY = Strategy(
    name="lfu",
    meaning="least frequently used, no prefetch",
    prefill=RING,
    slots="uniform",
    eviction="lfu",
    prefetch="none",
)
