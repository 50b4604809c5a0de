"""Checks sampled slots against the files."""

from __future__ import annotations

from engine.backends.offloaded_model import OffloadedModel

_MAX_SLOTS_CHECKED = 48


def check_slots(engine: OffloadedModel, max_slots: int = _MAX_SLOTS_CHECKED) -> tuple[int, int]:
    """(slots checked, slots whose bytes are not their expert's in the files).

    Waits for prefetches that are still on the link. Raises ExpertReadError where one of them fails.
    """
    _wait_for_arrivals(engine)
    resident = [
        (layer, expert, slot)
        for layer, geometry in enumerate(engine.loaded.plan.geometry.layers)
        for expert in range(geometry.num_experts)
        if (slot := engine.cache.slot_of(layer, expert)) is not None
    ]
    step = max(len(resident) // max_slots, 1)
    sample = resident[::step]
    holds = engine.loaded.holds_expert
    return len(sample), sum(not holds(layer, expert, engine.pool.memory(slot)) for layer, expert, slot in sample)


def _wait_for_arrivals(engine: OffloadedModel) -> None:
    for layer, geometry in enumerate(engine.loaded.plan.geometry.layers):
        for expert in range(geometry.num_experts):
            if (copy := engine.cache.copy_of(layer, expert)) is not None:
                copy.wait()
        engine.cache.settle(layer)
