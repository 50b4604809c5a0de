"""The combinations of policies that `bench policies` compares.

After the ablations of "MoE-CORE: Coordinated Expert Offload": load-on-demand, prefetch depth, eviction, domain profile,
nonuniform slots, substitution.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.config import APPROX, EXACT


@dataclass(frozen=True, slots=True)
class Variant:
    """One combination of policies."""

    eviction: str
    prefetch: str
    depth: int = 1
    mode: str = EXACT
    is_whole: bool = False
    """Every expert has a slot and is resident: the compute floor."""
    has_profile: bool = False
    """The cache is warmed by the domain's profile."""
    has_moved_slots: bool = False
    """Slots are moved between layers by the profiles' curves."""


FLOOR, BASELINE = "all resident", "load-on-demand"
VARIANTS = {
    FLOOR: Variant("lru", "none", is_whole=True),
    BASELINE: Variant("lru", "none"),
    "depth 0": Variant("history", "none"),
    "depth 1": Variant("history", "router-ahead", 1),
    "depth 2": Variant("history", "router-ahead", 2),
    "depth 3": Variant("history", "router-ahead", 3),
    "floor": Variant("history", "router-ahead-floor"),
    "expected gain": Variant("history", "router-ahead-gain"),
    "layers ahead": Variant("history", "layers-ahead"),
    "layers ahead, gain": Variant("history", "layers-ahead-gain"),
    "lru, depth 1": Variant("lru", "router-ahead", 1),
    "lfu, depth 1": Variant("lfu", "router-ahead", 1),
    "profile": Variant("history", "router-ahead", 1, has_profile=True),
    "nonuniform": Variant("history", "router-ahead", 1, has_moved_slots=True),
    "moe-core": Variant("history", "layers-ahead", has_profile=True, has_moved_slots=True),
    "approx": Variant("history", "router-ahead", 1, APPROX),
}
"""In the order of the table. `moe-core` is everything together."""

QUICK_VARIANTS = (
    FLOOR,
    BASELINE,
    "depth 0",
    "depth 1",
    "floor",
    "layers ahead",
    "lru, depth 1",
    "moe-core",
    "approx",
)
