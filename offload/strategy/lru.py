"""Least recently used, for comparisons."""

from __future__ import annotations

from offload.strategy.bundle import RING, Strategy

STRATEGY = Strategy(
    name="lru",
    meaning="least recently used, no prefetch",
    prefill=RING,
    slots="uniform",
    eviction="lru",
    prefetch="none",
)
