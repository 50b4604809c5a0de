"""After any failure there is a whole session or none; which one is said, and a load works."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.api import BenchPrediction, CountTokens
from engine.backends.offloaded_model import OffloadedModel
from engine.commands.bench import prediction
from engine.commands.task_outcome import TaskOutcome
from engine.events import (
    UNLOADED,
    EngineReady,
    Event,
    Failed,
    Notice,
    PrefillProgress,
    TaskEnded,
    TokensCounted,
    TurnEnded,
)
from engine.experts.expert_runtime import ExpertRuntime
from engine.process.session import Session
from tests.unit.engine.commands.tiny_bench import words
from tests.unit.engine.conftest import TinyFolder
from tests.unit.engine.process.worker_bench import WorkerBench, only

QUESTION = words(0, 6)
BENCH = BenchPrediction(3, is_quick=True)


@pytest.fixture
def folder(tiny_folder: TinyFolder) -> Path:
    return tiny_folder("qwen3_moe")


@pytest.fixture
def bench(folder: Path) -> Iterator[WorkerBench]:
    """With a model loaded."""
    bench = WorkerBench()
    only(EngineReady, bench.load(folder))
    yield bench
    bench.worker._unload()


def kinds_of_failure(events: list[Event]) -> list[tuple[int | None, str]]:
    return [(event.request_id, event.kind) for event in events if isinstance(event, Failed)]


@pytest.mark.parametrize("failing", ["__init__", "connect"])
@pytest.mark.parametrize("num_failures", [1, 2])
def test_a_rebuild_that_fails(
    bench: WorkerBench, folder: Path, monkeypatch: pytest.MonkeyPatch, failing: str, num_failures: int
) -> None:
    """Once: the bench's own, and the engine is put back. Twice: putting it back fails too, and no model is loaded."""
    left = [num_failures]
    right = getattr(ExpertRuntime, failing)

    def fail(runtime: ExpertRuntime, *arguments: object, **options: object) -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise RuntimeError("no memory for this")
        right(runtime, *arguments, **options)

    def rebuild_twice(engine: OffloadedModel, *_: object) -> TaskOutcome:
        config, slots = engine.config, engine.budget.groups
        try:
            engine.rebuild(config, slots)
        finally:
            engine.rebuild(config, slots)
        raise AssertionError("the first one fails")

    monkeypatch.setattr(ExpertRuntime, failing, fail)
    monkeypatch.setattr(prediction, "bench_prediction", rebuild_twice)
    failures = kinds_of_failure(bench.handle(BENCH))
    if num_failures == 1:
        assert failures == [(3, "")]
        only(TurnEnded, bench.ask(QUESTION))
    else:
        assert failures == [(None, UNLOADED), (3, "")]
        assert "No model is loaded" in only(Failed, bench.ask(QUESTION)).message
        only(EngineReady, bench.load(folder))
        only(TurnEnded, bench.ask(QUESTION))


def test_a_task_that_leaves_the_engine_whole_keeps_it(bench: WorkerBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction, "bench_prediction", lambda *_: TaskOutcome(True, {}, ()))
    only(TaskEnded, bench.handle(BENCH))
    only(TurnEnded, bench.ask(QUESTION))


def test_a_session_that_cannot_be_closed_does_not_keep_the_next_from_loading(
    bench: WorkerBench, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = Session.close

    def fail(session: Session) -> None:
        close(session)
        raise OSError("the file is gone")

    monkeypatch.setattr(Session, "close", fail)
    only(EngineReady, bench.load(folder))
    only(TurnEnded, bench.ask(QUESTION))


def test_a_load_that_fails_at_its_end_leaves_no_session(
    bench: WorkerBench, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(Session, "ready", lambda session: 1 / 0)
        assert "ZeroDivisionError" in only(Failed, bench.load(folder)).message
    assert "No model is loaded" in only(Failed, bench.ask(QUESTION)).message
    only(EngineReady, bench.load(folder))


def test_weights_that_are_overwritten(folder: Path, tmp_path: Path) -> None:
    """What is answered meanwhile is told to be doubtful; after that nothing is answered until the model is loaded
    again."""
    own = shutil.copytree(folder, tmp_path / "model")
    bench, weights = WorkerBench(), own / "model.safetensors"
    put = bench.put

    def overwrite_and_put(event: Event) -> None:
        if isinstance(event, PrefillProgress):
            weights.write_bytes(weights.read_bytes())
        put(event)

    bench.put = overwrite_and_put  # type: ignore[method-assign]
    bench.load(own)
    answered = bench.ask(QUESTION)
    assert isinstance(answered[-1], TurnEnded)
    assert str(weights) in only(Notice, answered).message
    assert only(Notice, answered).hint
    failed = only(Failed, bench.ask(QUESTION))
    assert (failed.request_id, failed.is_fatal) == (7, False)
    assert str(weights) in failed.message
    assert str(weights) in only(Failed, bench.handle(BENCH)).message
    only(EngineReady, bench.load(own))
    bench.worker._unload()


def test_tokens_are_counted_as_they_are_in_a_prompt(bench: WorkerBench) -> None:
    texts = (QUESTION, words(5, 40), "", "<|im_end|>")
    counted = only(TokensCounted, bench.handle(CountTokens(4, texts)))
    assert counted.request_id == 4
    ended = [only(TurnEnded, bench.ask(text)).stats.prompt_tok for text in texts[:2]]
    assert ended[1] - ended[0] == counted.counts[1] - counted.counts[0] > 0
    assert counted.counts[2] == 0
    bench.worker._unload()
    assert kinds_of_failure(bench.handle(CountTokens(5, texts))) == [(5, "")]
