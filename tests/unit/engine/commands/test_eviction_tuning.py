"""Recording traces into files, and tuning eviction weights on them, with a tiny model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.api import RecordTrace, TuneEviction
from engine.backends.offloaded_model import OffloadedModel
from engine.commands.record_trace import record_trace
from engine.commands.tune_eviction import reset_eviction, tune_eviction
from engine.errors import ConfigError
from engine.profiles.store import ProfileStore
from engine.telemetry.effective import effective, notices
from offload.errors import TraceError, WaitCancelled
from offload.policies.eviction.history import HistoryWeights
from offload.replay.held_out import CheckedTuning, PolicyLoads, tune_and_check
from offload.replay.trace import load_trace
from tests.architectures.test_matrix import open_model
from tests.architectures.tiny import save_checkpoint


def ignore(stage: str, done: int, total: int) -> None:
    pass


def never() -> bool:
    return False


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MOE_CHAT_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture
def engine(home: Path) -> Iterator[OffloadedModel]:
    engine = open_model(save_checkpoint(home / "model", "qwen3_moe"))
    yield engine
    engine.close()


@pytest.fixture
def prompts(home: Path) -> Path:
    path = home / "words.txt"
    path.write_text("\n".join(" ".join(f"w{3 + (7 * line + at) % 100}" for at in range(8)) for line in range(6)))
    return path


@pytest.fixture
def trace_path(engine: OffloadedModel, prompts: Path, home: Path) -> Path:
    record_trace(engine, RecordTrace(1, str(home / "words.npz"), "words", str(prompts), num_new_tok=12), ignore)
    return home / "words.npz"


def test_a_trace_is_recorded_in_a_file(engine: OffloadedModel, prompts: Path, home: Path) -> None:
    path = home / "words.npz"
    engine.set_mode("approx")
    command = RecordTrace(1, str(path), "words", str(prompts), num_prompts=3, num_new_tok=5)
    outcome = record_trace(engine, command, ignore)
    trace = load_trace(path)
    assert (trace.model, trace.domain, trace.num_prompts) == (engine.fingerprint, "words", 3)
    assert trace.geometry == engine.loaded.plan.geometry
    assert trace.scores is not None
    assert outcome.report["num_tok"] == trace.num_steps
    assert outcome.report["num_decode_tok"] == int((~trace.is_prefill).sum()) > 0
    assert outcome.report["has_predictions"]
    assert str(path) in outcome.lines[-1]
    assert engine.state.is_approx, "it was exact only for the recording"
    assert record_trace(engine, command, ignore).is_ok, "an earlier trace is replaced"


def test_what_is_no_trace_is_not_overwritten(engine: OffloadedModel, prompts: Path, home: Path) -> None:
    with pytest.raises(ConfigError, match="no routing trace: it is left alone"):
        record_trace(engine, RecordTrace(1, str(prompts), "words", str(prompts)), ignore)
    with pytest.raises(ConfigError, match="is a folder"):
        record_trace(engine, RecordTrace(1, str(home), "words", str(prompts)), ignore)
    with pytest.raises(ConfigError, match="no folder"):
        record_trace(engine, RecordTrace(1, str(home / "no" / "x.npz"), "words", str(prompts)), ignore)


def checked(best: HistoryWeights, held_out_loads: int) -> CheckedTuning:
    tuned_on = PolicyLoads(100, 80, 120, 110, 60, 50)
    held_out = PolicyLoads(50, held_out_loads, 60, 55, 30, 25)
    return CheckedTuning(best, tuned_on, held_out, 4, 2, {"words": held_out}, 130)


BEST = HistoryWeights(count=0.0, ema=1.0, score=0.25, recency=2.0, window_steps=8, ema_decay=0.9)


@pytest.fixture
def tune(engine: OffloadedModel, trace_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, bool], Any]:
    """Tunes with a search that finds BEST, with so many loads of the held-out prompts where the defaults have 50."""

    def run(held_out_loads: int, is_kept: bool) -> Any:
        monkeypatch.setattr(
            "engine.commands.tune_eviction.tune_and_check", lambda *args, **options: checked(BEST, held_out_loads)
        )
        return tune_eviction(engine, TuneEviction(1, (str(trace_path),), is_kept=is_kept), ignore, never)

    return run


def test_the_search_is_that_of_the_traces_at_the_engines_slots(engine: OffloadedModel, trace_path: Path) -> None:
    outcome = tune_eviction(engine, TuneEviction(1, (str(trace_path),)), ignore, never)
    slots = engine.cache.slots_per_layer
    expected = tune_and_check([load_trace(trace_path)], slots)
    report = outcome.report
    assert report["slots_per_layer"] == list(slots)
    assert report["tuned_on"] == {"prompts": 4, **expected.tuned_on._asdict()}
    assert report["held_out"] == {"prompts": 2, **expected.held_out._asdict()}
    assert report["weights"] == {name: getattr(expected.weights, name) for name in HistoryWeights.__slots__}
    assert (report["is_kept"], report["path"]) == (False, None)


def test_kept_weights_are_used_at_the_next_load_and_reset_forgets_them(
    engine: OffloadedModel, tune: Callable[[int, bool], Any], home: Path
) -> None:
    outcome = tune(45, True)
    assert outcome.report["is_kept"]
    assert "It saves 20.0% of the loads on the tuning prompts and 10.0% on held-out ones" in "\n".join(outcome.lines)
    assert "50% of the gain is overfitting" in "\n".join(outcome.lines)
    assert dict(effective(engine, "exact"))["eviction"] == "history (default weights)"
    again = open_model(home / "model")
    try:
        assert dict(effective(again, "exact"))["eviction"].startswith("history (tuned 20")
        assert again.tuned.weights == BEST
        assert again.cache._eviction._weights == BEST  # type: ignore[attr-defined]
        assert not any("eviction" in notice for notice in notices(again))
    finally:
        again.close()
    assert "deleted" in reset_eviction(home / "model").lines[0]
    assert "No weights were kept" in reset_eviction(home / "model").lines[0]
    assert ProfileStore(engine.fingerprint).load_weights() is None


def test_what_helps_only_where_it_was_found_is_not_kept(tune: Callable[[int, bool], Any]) -> None:
    outcome = tune(51, True)
    assert not outcome.report["is_kept"]
    text = "\n".join(outcome.lines)
    assert "all of the gain is overfitting" in text
    assert "Not kept: the defaults do as well" in text
    assert "--keep keeps it" in tune(45, False).lines[-1]


def test_damaged_weights_do_not_keep_a_model_from_loading(
    engine: OffloadedModel, tune: Callable[[int, bool], Any], home: Path
) -> None:
    tune(45, True)
    ProfileStore(engine.fingerprint).weights_path.write_text("{")
    again = open_model(home / "model")
    try:
        assert dict(effective(again, "exact"))["eviction"] == "history (default weights)"
        (notice,) = [text for text in notices(again) if "eviction.json" in text]
        assert "it is not valid JSON" in notice
        assert "The default weights are used. Tune again" in notice
    finally:
        again.close()


def test_without_traces_every_domains_prompts_are_recorded(
    engine: OffloadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    monkeypatch.setattr("engine.commands.tune_eviction.shipped_domains", lambda: ("maths", "words"))
    monkeypatch.setattr(
        "engine.commands.tune_eviction.shipped_prompts", lambda domain: ["w3 w4 w5", "w6 w7", "w8 w9", "w3"]
    )
    command = TuneEviction(1, num_prompts=3, num_new_tok=6)
    outcome = tune_eviction(engine, command, lambda *progress: told.append(progress), never)
    assert {stage for stage, _, _ in told} >= {"recording maths", "recording words", "searching weights"}
    assert ("recording words", 3, 3) in told
    assert set(outcome.report["held_out_by_domain"]) == {"maths", "words"}  # type: ignore[call-overload]


def test_it_can_be_stopped(engine: OffloadedModel, trace_path: Path) -> None:
    with pytest.raises(WaitCancelled):
        tune_eviction(engine, TuneEviction(1, (str(trace_path),)), ignore, lambda: True)


def test_another_models_trace_is_refused(engine: OffloadedModel, trace_path: Path, home: Path) -> None:
    other = open_model(save_checkpoint(home / "other", "qwen3_moe", seed=1))
    try:
        with pytest.raises(TraceError, match="recorded with another model than other") as refusal:
            tune_eviction(other, TuneEviction(1, (str(trace_path),)), ignore, never)
        assert "trace record" in refusal.value.hint
    finally:
        other.close()


def test_where_nothing_is_evicted_there_is_nothing_to_tune(home: Path) -> None:
    engine = open_model(save_checkpoint(home / "model", "qwen3_moe"), residency=1.0)
    try:
        with pytest.raises(ConfigError, match="nothing is ever evicted"):
            tune_eviction(engine, TuneEviction(1), ignore, never)
    finally:
        engine.close()
