"""Layer-wise full prefetch: the other baseline of DuoServe-MoE (MoESys).

Prefill stages whole layers in two buffers of its own, beside the two layers of decode."""

from __future__ import annotations

from offload.strategy.bundle import FULL_LAYER, Strategy

STRATEGY = Strategy(
    name="layer-prefetch",
    meaning="the whole next layer is loaded while one computes",
    prefill=FULL_LAYER,
    slots="two-layers",
    eviction="not-picked",
    prefetch="whole-layer",
)
