"""Checks stored bytes: sampled slots against the files, and every stored tensor for NaN and infinite values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from engine.backends.offloaded_model import OffloadedModel
from engine.checkpoint.index import read_index
from engine.commands.task_outcome import OnTaskProgress
from offload.errors import WaitCancelled

_MAX_SLOTS_CHECKED = 48


def check_slots(engine: OffloadedModel, max_slots: int = _MAX_SLOTS_CHECKED) -> tuple[int, int]:
    """(slots checked, slots whose bytes are not their expert's as the library converts it from the files).

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
    return len(sample), sum(not _holds_its_expert(engine, *where) for where in sample)


def _wait_for_arrivals(engine: OffloadedModel) -> None:
    for layer, geometry in enumerate(engine.loaded.plan.geometry.layers):
        for expert in range(geometry.num_experts):
            if (copy := engine.cache.copy_of(layer, expert)) is not None:
                copy.wait()
        engine.cache.settle(layer)


def _holds_its_expert(engine: OffloadedModel, layer: int, expert: int, slot: int) -> bool:
    memory = engine.pool.tensor(slot)
    for layout in engine.loaded.formats[layer].parameters:
        parameter = engine.loaded.modules[layer].parameters[layout.name]
        parts = parameter.parts[expert]
        value = parameter.convert([part.read() for part in parts], parts, engine.loaded.model).to(layout.dtype)
        held = memory[layout.slot_offset : layout.slot_offset + layout.num_bytes]
        if not torch.equal(held, value.contiguous().view(torch.uint8).reshape(-1)):
            return False
    return True


def tensors_not_finite(folder: Path, on_progress: OnTaskProgress, is_cancelled: Callable[[], bool]) -> list[str]:
    """Reads every stored tensor; returns the keys of those that hold NaN or infinite values."""
    damaged: list[str] = []
    entries = list(read_index(folder).values())
    for number, entry in enumerate(entries):
        on_progress("looking for values that are not finite", number, len(entries))
        if is_cancelled():
            raise WaitCancelled("Stopped.")
        if entry.dtype.is_floating_point and not torch.isfinite(entry.read()).all():
            damaged.append(entry.key)
    return damaged
