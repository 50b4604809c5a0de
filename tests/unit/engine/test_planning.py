"""The budget's split before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config import EngineConfig
from engine.planning import plan_only
from offload.errors import BudgetError
from tests.architectures.tiny import save_checkpoint


def never() -> bool:
    return False


def test_the_split_is_told_without_reading_a_weight(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path / "m", "qwen3_moe")
    outcome = plan_only(EngineConfig(model=str(folder), residency=0.5), folder, never)
    parts = outcome.report["parts"]
    assert isinstance(parts, dict)
    assert sum(parts.values()) + outcome.report["headroom_bytes"] == outcome.report["budget_bytes"]
    assert outcome.report["slots_per_layer"] == [4, 4, 4]
    assert any("4 slots for 8 experts" in line for line in outcome.lines)


def test_too_small_a_budget_is_refused_with_one_that_works(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path / "m", "qwen3_moe")
    with pytest.raises(BudgetError) as refusal:
        plan_only(EngineConfig(model=str(folder), memory_bytes=1 << 20), folder, never)
    assert refusal.value.needed_bytes is not None
    assert refusal.value.needed_bytes > 1 << 20
