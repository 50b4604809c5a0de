"""Moves the slots of a planned budget to the layers whose hit rate gains most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from offload.budget import BudgetPlan
from offload.geometry import Geometry
from offload.policies.slot_planning.curve import HitRateCurve
from offload.policies.slot_planning.nonuniform import plan_nonuniform
from offload.slot_groups import SlotGroups


def with_moved_slots(plan: BudgetPlan, geometry: Geometry, curves: Sequence[HitRateCurve]) -> BudgetPlan:
    """The same bytes with slots moved between layers by their hit-rate curves; see `plan_nonuniform`. Layers that share
    slots keep them: nothing is moved.

    Where full layers are staged, every layer keeps the 2k slots that staging must leave it.
    """
    if not plan.groups.is_per_layer:
        return plan
    slots_per_layer = plan.groups.slots
    fewest = [
        min(2 * layer.top_k, slots) if plan.has_layer_staging else layer.min_slots
        for layer, slots in zip(geometry.layers, slots_per_layer, strict=True)
    ]
    moved = plan_nonuniform(geometry, slots_per_layer, curves, fewest=fewest)
    groups = SlotGroups.per_layer(moved.slots_per_layer)
    return replace(plan, groups=groups, slot_bytes=groups.total_bytes(geometry), slot_moves=moved.moves)
