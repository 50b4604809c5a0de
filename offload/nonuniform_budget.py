"""Moves the slots of a planned budget to the layers whose hit rate gains most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from offload.budget import BudgetPlan
from offload.geometry import Geometry, pool_bytes
from offload.policies.slot_planning.curve import HitRateCurve
from offload.policies.slot_planning.nonuniform import plan_nonuniform


def with_moved_slots(plan: BudgetPlan, geometry: Geometry, curves: Sequence[HitRateCurve]) -> BudgetPlan:
    """The same bytes with slots moved between layers by their hit-rate curves; see `plan_nonuniform`.

    Where full layers are staged, every layer keeps the 2k slots that staging must leave it.
    """
    fewest = [
        min(2 * layer.top_k, slots) if plan.has_layer_staging else layer.min_slots
        for layer, slots in zip(geometry.layers, plan.slots_per_layer, strict=True)
    ]
    moved = plan_nonuniform(geometry, plan.slots_per_layer, curves, fewest=fewest)
    slot_bytes = pool_bytes(moved.slots_per_layer, tuple(layer.expert_bytes for layer in geometry.layers))
    return replace(plan, slots_per_layer=moved.slots_per_layer, slot_bytes=slot_bytes, slot_moves=moved.moves)
