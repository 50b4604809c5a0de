"""MoE-CORE, the default: after "MoE-CORE: Coordinated Expert Offload".

What was found to be better here is in place of the paper's: two layers ahead at a fixed depth, not the overlap
window's.
"""

from __future__ import annotations

from offload.strategy.bundle import AUTO, Strategy

STRATEGY = Strategy(
    name="moe-core",
    meaning="routing history, the next layers' routers asked early, slots by profile",
    prefill=AUTO,
    slots="nonuniform",
    eviction="history",
    prefetch="layers-ahead",
)
