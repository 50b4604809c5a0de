"""The budget's split before anything is loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.checkpoint.fingerprint import fingerprint
from engine.commands.plan_model import plan_model
from engine.config import EngineConfig
from engine.profiles.store import ProfileStore
from offload.errors import BudgetError
from offload.replay.profile import build_profile
from offload.replay.trace_writer import TraceWriter
from tests.architectures.test_matrix import open_model
from tests.architectures.tiny import save_checkpoint


@pytest.fixture(autouse=True)
def _no_profiles_but_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOE_CHAT_HOME", str(tmp_path / "home"))


def never() -> bool:
    return False


def test_the_split_is_told_without_reading_a_weight(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path / "m", "qwen3_moe")
    outcome = plan_model(EngineConfig(model=str(folder), residency=0.5), folder, never)
    parts = outcome.report["parts"]
    assert isinstance(parts, dict)
    assert sum(parts.values()) + outcome.report["headroom_bytes"] == outcome.report["budget_bytes"]
    assert outcome.report["slots_per_layer"] == [4, 4, 4]
    assert any("4 slots for 8 experts" in line for line in outcome.lines)
    assert "prediction: 2 of 2 layers predictable" in outcome.lines[-1]


def test_a_model_that_predicts_the_slow_way_is_told(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path / "m", "gemma4_text")
    outcome = plan_model(EngineConfig(model=str(folder), residency=0.5), folder, never)
    assert "slowly, by the router itself" in str(outcome.report["prediction"])


def test_too_small_a_budget_is_refused_with_one_that_works(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path / "m", "qwen3_moe")
    with pytest.raises(BudgetError) as refusal:
        plan_model(EngineConfig(model=str(folder), memory_bytes=1 << 20), folder, never)
    assert refusal.value.needed_bytes is not None
    assert refusal.value.needed_bytes > 1 << 20


def lopsided_profile(folder: Path) -> None:
    """Keeps a profile in which the first two layers always want the same experts, and the last one all in turn."""
    engine = open_model(folder, residency=0.5)
    writer = TraceWriter(engine.fingerprint, "words", engine.loaded.plan.geometry)
    engine.close()
    writer.begin_prompt()
    for step in range(200):
        writer.begin()
        for layer in range(3):
            writer.record(layer, [step % 8, (step + 1) % 8] if layer == 2 else [0, 1])
    ProfileStore(engine.fingerprint).save(build_profile(writer.trace(), created_s=0.0))


def test_the_models_profiles_move_slots_where_the_plan_is_not_uniform(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path / "m", "qwen3_moe")
    lopsided_profile(folder)
    config = EngineConfig(model=str(folder), residency=0.5, prefill="ring")
    moved = plan_model(config, folder, never)
    assert moved.report["slots_per_layer"] == [3, 3, 6]
    assert any("gives 1" in line for line in moved.lines)
    uniform = plan_model(replace(config, slots="uniform"), folder, never)
    assert uniform.report["slots_per_layer"] == [4, 4, 4]
    assert moved.report["parts"] == uniform.report["parts"]
    engine = open_model(folder, residency=0.5, prefill="ring")
    try:
        assert engine.cache.slots_per_layer == (3, 3, 6)
        assert len(engine.greedy_ids([3, 4, 5], 8)[0]) == 8
        engine.cache.check_integrity()
    finally:
        engine.close()


def test_a_damaged_profile_does_not_keep_a_model_from_being_planned(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path / "m", "qwen3_moe")
    path = ProfileStore(fingerprint(folder)).path("words")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no profile")
    assert plan_model(EngineConfig(model=str(folder), residency=0.5), folder, never).report["slot_moves"] == []
