"""MoE-Infinity: after "MoE-Infinity: Sparsity-Aware Expert Cache" (arXiv, version 3)."""

from __future__ import annotations

from offload.strategy.bundle import RING, Strategy

STRATEGY = Strategy(
    name="moe-infinity",
    meaning="past requests' activation matrices; one pool for all layers",
    prefill=RING,
    slots="pool",
    eviction="activation",
    prefetch="activation",
)
