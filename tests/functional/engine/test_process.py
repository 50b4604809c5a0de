"""The engine's process: it starts, answers, stops when told, and never outlives or blocks anybody."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable
from itertools import count, pairwise
from pathlib import Path
from time import monotonic

import psutil
import pytest

from engine import client
from engine.api import Cancel, Diagnose, Load, SetMode
from engine.config import APPROX, EXACT
from engine.errors import EngineDiedError
from engine.events import (
    CANCELLED,
    LENGTH,
    EngineReady,
    Failed,
    LoadProgress,
    ModeChanged,
    PrefillProgress,
    TaskEnded,
    TaskProgress,
    TextDelta,
    TurnEnded,
)
from tests.architectures.tiny import save_checkpoint
from tests.functional.engine.running_engine import (
    RunningEngine,
    config_of,
    is_gone,
    seconds_to_close,
    wait_until,
)
from tests.patience import GONE_S

NewEngine = Callable[[], RunningEngine]
QUESTION = "w5 w9 w77 w30"
LONG_QUESTION = " ".join(f"w{3 + number % 120}" for number in range(230))
SLOW_LINK = 2e5
"""Bytes a second, at which a tiny expert takes an eighth of a second."""
_NUMBERS = count(100)


# -- the life of a process


def test_from_start_to_end(new_engine: NewEngine, tiny: Path) -> None:
    engine = new_engine()
    started = monotonic()
    ready = engine.load(tiny)
    check_that_something_was_heard_all_the_time(engine, started)
    assert (ready.model_type, ready.num_layers, ready.num_experts, ready.top_k) == ("qwen3_moe", 3, 8, 2)
    ended = engine.ask(1, QUESTION, max_new_tok=5)
    assert (ended.reason, ended.stats.new_tok) == (LENGTH, 5)
    engine.until_snapshot(lambda snapshot: snapshot.phase == "idle" and snapshot.turn_counters == ended.stats.counters)
    assert seconds_to_close(engine) < GONE_S
    assert not engine.client.drain()
    with pytest.raises(EngineDiedError):
        engine.submit(2, QUESTION)
    engine.client.close()


def check_that_something_was_heard_all_the_time(engine: RunningEngine, started: float) -> None:
    """From the spawn on somebody who watches hears something at least once a second."""
    times = [started, *(at for at, _ in engine.heard)]
    gaps = [after - before for before, after in pairwise(times)]
    assert max(gaps) < 1.0 + 1.5, gaps  # the rest for a busy machine
    stages = [event.stage for _, event in engine.heard if isinstance(event, LoadProgress)]
    assert {"weights", "warm-up"} <= set(stages)


def test_closed_while_importing(new_engine: NewEngine) -> None:
    engine = new_engine()
    engine.until(LoadProgress)
    assert seconds_to_close(engine) < GONE_S


@pytest.mark.parametrize("when", ["load", "prefill", "decode"])
def test_closed_at_work(new_engine: NewEngine, tiny: Path, demo_folder: Path, when: str) -> None:
    engine = new_engine()
    if when == "load":
        engine.client.send(Load(config_of(demo_folder, compute_threads=None)))
        engine.until(LoadProgress, lambda event: event.stage == "weights")
    else:
        engine.load(tiny, link_bytes_per_s=SLOW_LINK)
        engine.submit(1, LONG_QUESTION)
        engine.until(PrefillProgress)
        if when == "decode":
            engine.until(TextDelta)
    assert seconds_to_close(engine) < GONE_S


def test_killed_from_outside(new_engine: NewEngine, tiny: Path) -> None:
    engine = new_engine()
    engine.load(tiny)
    pid = engine.process.pid
    os.kill(pid, signal.SIGKILL)
    failed = engine.until(Failed)
    assert failed.is_fatal
    assert "SIGKILL" in failed.message
    assert failed.hint
    wait_until(lambda: is_gone(pid))
    with pytest.raises(EngineDiedError):
        engine.submit(1, QUESTION)
    engine.client.start()
    assert engine.client.snapshot is None
    engine.load(tiny)
    assert engine.process.pid != pid
    assert engine.ask(2, QUESTION, max_new_tok=3).reason == LENGTH


def test_signals_of_the_terminal_do_not_reach_it(shared_engine: RunningEngine) -> None:
    process = shared_engine.process
    assert os.getsid(process.pid) == process.pid
    os.kill(process.pid, signal.SIGINT)
    assert shared_engine.ask(next(_NUMBERS), QUESTION, max_new_tok=2).reason == LENGTH


# -- commands


def test_a_queued_request_is_cancelled(shared_engine: RunningEngine) -> None:
    first, second, third = (next(_NUMBERS) for _ in range(3))
    shared_engine.submit(first, LONG_QUESTION, max_new_tok=20)
    shared_engine.submit(second, QUESTION, max_new_tok=20)
    shared_engine.client.send(Cancel(second))
    shared_engine.submit(third, QUESTION, max_new_tok=3)
    reasons = {
        number: shared_engine.until(TurnEnded, lambda event, number=number: event.request_id == number).reason
        for number in (first, second, third)
    }
    assert reasons == {first: LENGTH, second: CANCELLED, third: LENGTH}


def test_a_running_answer_is_cancelled(shared_engine: RunningEngine) -> None:
    number = next(_NUMBERS)
    shared_engine.submit(number, QUESTION)
    shared_engine.until(TextDelta)
    shared_engine.client.send(Cancel(number))
    ended = shared_engine.until(TurnEnded, lambda event: event.request_id == number)
    assert ended.reason == CANCELLED
    told = [e.text for _, e in shared_engine.heard if isinstance(e, TextDelta) and e.request_id == number]
    assert ended.text == "".join(told) != ""


def test_the_mode_changes_in_mid_answer(shared_engine: RunningEngine) -> None:
    number = next(_NUMBERS)
    shared_engine.submit(number, QUESTION)
    shared_engine.until(TextDelta)
    shared_engine.client.send(SetMode(APPROX))
    change = shared_engine.until(ModeChanged)
    assert (change.mode, change.request_id) == (APPROX, number)
    assert change.at_tok is not None
    shared_engine.client.send(SetMode(EXACT))
    assert shared_engine.until(ModeChanged).mode == EXACT
    shared_engine.client.send(Cancel(number))
    shared_engine.until(TurnEnded)


def test_an_error_of_a_request_is_told_and_the_next_one_answered(shared_engine: RunningEngine) -> None:
    number = next(_NUMBERS)
    shared_engine.submit(number, LONG_QUESTION + " " + LONG_QUESTION)
    failed = shared_engine.until(Failed)
    assert (failed.request_id, failed.title, failed.is_fatal) == (number, "The context is full", False)
    assert failed.kind == "context_full"
    assert failed.prompt_tok >= failed.context_tok > 0
    assert failed.hint
    assert shared_engine.ask(next(_NUMBERS), QUESTION, max_new_tok=2).reason == LENGTH


def test_a_slow_reader_never_blocks_decode(new_engine: NewEngine, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody reads the socket, which holds a few events only: the answer is written to its end all the same."""
    pair = socket.socketpair

    def narrow_pair() -> tuple[socket.socket, socket.socket]:
        ours, theirs = pair()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return ours, theirs

    monkeypatch.setattr(client.socket, "socketpair", narrow_pair)
    engine = new_engine()
    engine.load(tiny)
    engine.ask(1, QUESTION, max_new_tok=2)
    sequence = engine.until_snapshot(lambda snapshot: snapshot.phase == "idle").sequence
    with engine.client._arrived:  # holds up the thread that reads the socket
        start = monotonic()
        engine.submit(2, QUESTION, max_new_tok=200)
        wait_until(lambda: has_come_to_rest(engine.process))
        held_s = monotonic() - start
    ended = engine.until(TurnEnded, lambda event: event.request_id == 2)
    assert ended.stats.new_tok == 200
    assert ended.stats.ttft_ms is not None
    assert ended.stats.tpot_ms is not None
    assert ended.stats.ttft_ms + 199 * ended.stats.tpot_ms < 1000 * held_s
    told = [event.num_tok for _, event in engine.heard if isinstance(event, TextDelta) and event.request_id == 2]
    assert told == sorted(told)
    snapshot = engine.until_snapshot(lambda snapshot: snapshot.phase == "idle" and snapshot.sequence > sequence)
    assert snapshot.turn_counters == ended.stats.counters


def has_come_to_rest(process: psutil.Process) -> bool:
    """It used no processor for three tenths of a second."""
    before = process.cpu_times()
    threading.Event().wait(0.3)
    after = process.cpu_times()
    return after.user == before.user and after.system == before.system


# -- loading again


def test_what_was_asked_for_before_loading(new_engine: NewEngine, tiny: Path) -> None:
    """While torch is still being imported a load only waits: it is cancelled all the same."""
    engine = new_engine()
    engine.client.send(Load(config_of(tiny)))
    engine.client.send(Cancel())
    failed = engine.until(Failed)
    assert (failed.request_id, failed.title, failed.is_fatal) == (None, "Stopped", False)
    check_that_a_load_has_its_own_mode(engine, tiny)


def check_that_a_load_has_its_own_mode(engine: RunningEngine, tiny: Path) -> None:
    """It wins over what was set before it was sent; what is set after that wins over it."""
    for mode, then in ((EXACT, APPROX), (APPROX, EXACT)):
        engine.client.send(SetMode(then))
        ready = engine.load(tiny, mode=mode)
        assert dict(ready.effective)["mode"].startswith(mode)
        engine.until_snapshot(lambda snapshot, mode=mode: (snapshot.phase, snapshot.mode) == ("idle", mode))
        engine.client.send(Load(config_of(tiny, mode=mode)))
        engine.client.send(SetMode(then))
        assert dict(engine.until(EngineReady).effective)["mode"].startswith(then)


def test_loading_again(new_engine: NewEngine, tiny: Path, tmp_path: Path, demo_folder: Path) -> None:
    engine = new_engine()
    for mode in (EXACT, APPROX, EXACT):
        assert dict(engine.load(tiny, mode=mode).effective)["mode"].startswith(mode)
    check_that_a_refused_model_leaves_the_engine_usable(engine, tiny, save_checkpoint(tmp_path / "llama", "llama"))
    check_that_the_memory_comes_back(engine, tiny, demo_folder)


def check_that_a_refused_model_leaves_the_engine_usable(engine: RunningEngine, good: Path, bad: Path) -> None:
    engine.client.send(Load(config_of(bad)))
    failed = engine.until(Failed)
    assert (failed.title, failed.is_fatal) == ("Unsupported model", False)
    engine.submit(1, QUESTION)
    assert "No model is loaded" in engine.until(Failed).message
    engine.load(good)
    assert engine.ask(2, QUESTION, max_new_tok=2).reason == LENGTH


def check_that_the_memory_comes_back(engine: RunningEngine, small: Path, big: Path) -> None:
    """Neither what is held nor what is planned for the runtime grows from load to load."""
    empty = engine.process.memory_info().rss
    held, budgets = [], []
    for _ in range(2):
        ready = engine.load(big, context_tok=512)
        held.append(engine.process.memory_info().rss)
        wait_until(lambda: bool(engine.client.snapshot and engine.client.snapshot.context_tok == 512))
        snapshot = engine.until_snapshot(lambda s, ready=ready: s.context_tok == ready.context_tok)
        budgets.append(snapshot.memory.budget_bytes)
        engine.load(small)
    model_bytes = held[0] - empty
    assert model_bytes > 100 << 20
    assert max(held) - held[0] < 0.1 * model_bytes, (empty, held)
    assert max(budgets) - budgets[0] < 0.1 * model_bytes, budgets
    assert engine.process.memory_info().rss - empty < 0.15 * model_bytes


def test_a_diagnosis_needs_no_loaded_model(new_engine: NewEngine, tiny: Path) -> None:
    engine = new_engine()
    engine.client.send(Diagnose(3, config_of(tiny)))
    progress = engine.until(TaskProgress)
    assert progress.stage.startswith("checking: ")
    ended = engine.until(TaskEnded)
    assert ended.is_ok
    checks = ended.report["checks"]
    assert isinstance(checks, list)
    assert {check["verdict"] for check in checks} <= {"ok", "warn"}
