"""DuoServe-MoE: after "DuoServe-MoE: Dual-Phase Expert Prefetch" (arXiv, version 2)."""

from __future__ import annotations

from offload.strategy.bundle import PIPELINE, Strategy

STRATEGY = Strategy(
    name="duoserve",
    meaning="one step's experts, and those predicted for the next layer by what was selected before",
    prefill=PIPELINE,
    slots="two-steps",
    eviction="not-picked",
    prefetch="next-step",
)
