"""`trace` and `tune`: what they ask of a fake engine, and replays, which ask nothing."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from app.cli import main as cli
from app.cli import usage
from engine.api import RecordTrace, ResetEviction, TuneEviction
from engine.events import TaskEnded, TaskProgress
from tests.functional.app.fake_engine import FakeEngine
from tests.functional.app.played_engine import Play
from tests.unit.engine.commands.test_trace_replay import make_trace

Install = Callable[[Play], FakeEngine]

ENDED = TaskEnded(1, True, {"path": "x"}, ("first line", "second line"))


def test_record_a_domains_prompts(play: Install, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    engine = play(lambda engine, command: engine.tell(TaskProgress(1, "recording", 3, 5), ENDED))
    out = tmp_path / "maths.npz"
    argv = ["trace", "record", "--domain", "maths", "--out", str(out), "--max-prompts", "5", "--tokens", "8"]
    assert cli.main(argv) == usage.EXIT_OK
    assert capsys.readouterr().out == "first line\nsecond line\n"
    assert engine.sent[-1] == RecordTrace(1, str(out), "maths", None, 5, 8)
    assert engine.is_closed


def test_record_prompts_of_ones_own(play: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.jsonl").write_text('{"prompt": "hi"}\n')
    monkeypatch.chdir(tmp_path)
    engine = play(lambda engine, command: engine.tell(ENDED))
    assert cli.main(["trace", "record", "--prompts", "mine.jsonl", "--out", "mine.npz"]) == usage.EXIT_OK
    prompts, out = str(tmp_path / "mine.jsonl"), str(tmp_path / "mine.npz")
    assert engine.sent[-1] == RecordTrace(1, out, "mine", prompts, None, 48)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["trace", "record", "--out", "x", "--domain", "maths", "--prompts", "y"], "contradicts"),
        (["trace", "record", "--out", "x", "--prompts", "nowhere"], "no file nowhere"),
        (["trace", "record", "--out", "nowhere/x"], "no folder"),
        (["trace", "record", "--out", "x", "--tokens", "0"], "--tokens is 0"),
        (["tune", "--reset", "--keep"], "contradicts"),
        (["tune", "--trace", "nowhere.npz"], "nowhere.npz"),
        (["tune", "--max-prompts", "0"], "--max-prompts is 0"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_loaded(
    play: Install, capsys: pytest.CaptureFixture[str], argv: list[str], words: str
) -> None:
    engine = play(lambda engine, command: engine.tell(ENDED))
    assert cli.main(argv) == usage.EXIT_USAGE
    assert words in capsys.readouterr().err
    assert not engine.is_started


def test_tune(play: Install, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    engine = play(lambda engine, command: engine.tell(ENDED))
    assert cli.main(["tune"]) == usage.EXIT_OK
    assert engine.sent[-1] == TuneEviction(1)
    for name in ("a.npz", "b.npz"):
        (tmp_path / name).touch()
    engine = play(lambda engine, command: engine.tell(ENDED))
    traces = [str(tmp_path / "a.npz"), str(tmp_path / "b.npz")]
    argv = ["tune", "--trace", traces[0], "--trace", traces[1], "--keep", "--json", "--residency", "25%"]
    capsys.readouterr()
    assert cli.main(argv) == usage.EXIT_OK
    assert engine.sent[-1] == TuneEviction(1, tuple(traces), is_kept=True)
    assert json.loads(capsys.readouterr().out) == {
        "is_ok": True,
        "settings": {"model.residency": "25% (--residency)"},
        "path": "x",
    }


def test_resetting_loads_nothing(play: Install) -> None:
    engine = play(lambda engine, command: engine.tell(ENDED))
    assert cli.main(["tune", "--reset", "--model", "some/model"]) == usage.EXIT_OK
    (reset,) = engine.sent
    assert isinstance(reset, ResetEviction)
    assert reset.config.model == "some/model"


def test_ctrl_c_ends_tuning_and_prints_no_report(play: Install, capsys: pytest.CaptureFixture[str]) -> None:
    def script(engine: FakeEngine, command: object) -> None:
        if isinstance(command, TuneEviction):
            engine.tell(TaskProgress(1, "searching weights", 1, 40))
            os.kill(os.getpid(), signal.SIGINT)
            engine.tell(ENDED)

    engine = play(script)
    assert cli.main(["tune"]) == usage.EXIT_INTERRUPTED
    assert engine.is_closed
    assert capsys.readouterr().out == ""


def test_a_replay_needs_no_engine(play: Install, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    engine = play(lambda engine, command: engine.tell(ENDED))
    path = tmp_path / "maths.npz"
    make_trace().save(path)
    assert cli.main(["trace", "replay", str(path), "--slots", "3", "--policies", "lru,lfu"]) == usage.EXIT_OK
    text = capsys.readouterr().out
    assert "3 slots of 8 experts in each of 2 MoE layers" in text
    assert "lower bound, one pool" in text
    assert (
        cli.main(["trace", "replay", str(path), "--residency", "50%", "--policies", "lru", "--json"]) == usage.EXIT_OK
    )
    report = json.loads(capsys.readouterr().out)
    assert report["slots_per_layer"] == [4, 4]
    assert list(report["policies"]) == ["lru"]
    assert not engine.is_started


def test_what_cannot_be_replayed(play: Install, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    play(lambda engine, command: engine.tell(ENDED))
    damaged = tmp_path / "damaged.npz"
    damaged.write_bytes(b"nothing of the kind")
    assert cli.main(["trace", "replay", str(damaged)]) == usage.EXIT_FAILED
    said = capsys.readouterr().err
    assert "damaged.npz is damaged" in said
    assert "moe-chat trace record" in said
    assert cli.main(["trace", "replay", str(damaged), "--policies", "fifo"]) == usage.EXIT_USAGE
    assert "'fifo'" in capsys.readouterr().err
