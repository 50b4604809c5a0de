"""The commands without a screen, on a fake engine."""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from app.cli import engine_run, usage
from app.cli import main as cli
from app.storage.paths import AppPaths
from engine.api import BenchOverhead, BenchPolicies, Cancel, Command, Load, Submit, Verify
from engine.events import CANCELLED, Failed, TaskEnded, TaskProgress, TextDelta
from tests.functional.app.fake_engine import FakeEngine
from tests.functional.app.played_engine import Play, say_paris


def test_ask_prints_the_answer_and_nothing_else_on_stdout(
    play: Callable[[Play], FakeEngine], capsys: pytest.CaptureFixture[str]
) -> None:
    engine = play(say_paris)
    assert cli.main(["ask", "What", "is", "the capital?"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "It is Paris.\n"
    assert "often wrong" in printed.err
    (submit,) = engine.submitted()
    assert [message.content for message in submit.messages] == ["What is the capital?"]
    assert engine.is_closed


def test_stats_come_after_the_answer(play: Callable[[Play], FakeEngine], capsys: pytest.CaptureFixture[str]) -> None:
    play(say_paris)
    assert cli.main(["ask", "--stats", "capital?"]) == 0
    answer, *stats = capsys.readouterr().out.splitlines()
    assert answer == "It is Paris."
    assert all(line.startswith("# ") for line in stats)
    text = "\n".join(stats)
    for word in ("TTFT", "TPOT", "resident hits", "prefetched hits", "late", "misses", "substituted", "moved", "exact"):
        assert word in text
    assert "of 240" in text


def test_json_is_one_object_a_line(play: Callable[[Play], FakeEngine], capsys: pytest.CaptureFixture[str]) -> None:
    play(say_paris)
    assert cli.main(["ask", "--json", "--stats", "capital?"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds == ["chat", "loading", "ready", "prefill", "text", "text", "end"]
    assert events[-1]["text"] == "It is Paris."
    assert events[-1]["stats"]["counters"]["routed"] == 240
    assert events[2]["effective"]["residency"] == "50 %"


def test_domain_and_system_prompt(play: Callable[[Play], FakeEngine]) -> None:
    engine = play(say_paris)
    assert cli.main(["ask", "--domain", "maths", "1+1"]) == 0
    assert "mathematics" in engine.submitted()[0].messages[0].content
    engine = play(say_paris)
    assert cli.main(["ask", "--system", "", "1+1"]) == 0
    assert [message.role for message in engine.submitted()[0].messages] == ["user"]
    assert cli.main(["ask", "--domain", "astrology", "1+1"]) == usage.EXIT_USAGE


def test_what_is_piped_in_is_context(play: Callable[[Play], FakeEngine], monkeypatch: pytest.MonkeyPatch) -> None:
    engine = play(say_paris)
    reading, writing = os.pipe()
    os.write(writing, b"a long text")
    os.close(writing)
    with open(reading, encoding="utf-8") as piped:
        monkeypatch.setattr("sys.stdin", piped)
        assert cli.main(["ask", "summarise"]) == 0
    assert engine.submitted()[0].messages[-1].content == "a long text\n\nsummarise"


def test_no_question(
    play: Callable[[Play], FakeEngine], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    play(say_paris)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert cli.main(["ask"]) == usage.EXIT_USAGE
    assert "no question" in capsys.readouterr().err


def test_control_characters_do_not_reach_the_terminal(
    play: Callable[[Play], FakeEngine], capsys: pytest.CaptureFixture[str]
) -> None:
    def script(engine: FakeEngine, command: Command) -> None:
        if isinstance(command, Submit):
            engine.tell(TextDelta(1, "\x1b[2Jgone", 1))
            engine.end_answer(1, "\x1b[2Jgone", 1)

    play(script)
    assert cli.main(["ask", "hi"]) == 0
    assert capsys.readouterr().out == "␛[2Jgone\n"


def test_ctrl_c_keeps_the_partial_answer(
    play: Callable[[Play], FakeEngine], capsys: pytest.CaptureFixture[str]
) -> None:
    def script(engine: FakeEngine, command: Command) -> None:
        if isinstance(command, Submit):
            engine.tell(TextDelta(1, "Once upon", 2))
            os.kill(os.getpid(), signal.SIGINT)
        elif isinstance(command, Cancel):
            engine.end_answer(1, "Once upon", 2, reason=CANCELLED)

    engine = play(script)
    assert cli.main(["ask", "--stats", "a story"]) == usage.EXIT_INTERRUPTED
    out = capsys.readouterr().out
    assert out.startswith("Once upon\n# answer")
    assert "stopped" in out
    assert engine.is_closed
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_while_loading_ends_at_once(play: Callable[[Play], FakeEngine], monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine()
    monkeypatch.setattr(engine_run, "make_link", lambda paths: engine)
    monkeypatch.setattr(engine, "answer", lambda command: os.kill(os.getpid(), signal.SIGINT))
    assert cli.main(["ask", "a story"]) == usage.EXIT_INTERRUPTED
    assert engine.is_closed


@pytest.mark.parametrize("is_fatal", [False, True])
def test_an_engine_error_is_told_with_what_to_do(
    play: Callable[[Play], FakeEngine], capsys: pytest.CaptureFixture[str], is_fatal: bool
) -> None:
    failure = Failed(None if is_fatal else 1, "Damaged checkpoint", "Shard 2 is missing.", "Fetch it again.", is_fatal)
    engine = play(lambda engine, command: engine.tell(failure))
    assert cli.main(["ask", "hi"]) == usage.EXIT_FAILED
    assert capsys.readouterr().err.splitlines()[-2:] == ["Damaged checkpoint: Shard 2 is missing.", "Fetch it again."]
    assert engine.is_closed


@pytest.mark.parametrize(("is_ok", "code"), [(True, 0), (False, 1)])
def test_verify(play: Callable[[Play], FakeEngine], capsys: pytest.CaptureFixture[str], is_ok: bool, code: int) -> None:
    ended = TaskEnded(1, is_ok, {"tokens": 8}, ("32 tokens compared", "verdict"))
    engine = play(lambda engine, command: engine.tell(TaskProgress(1, "comparing", 1, 8), ended))
    assert cli.main(["verify", "--tokens", "8", "--residency", "25%"]) == code
    assert capsys.readouterr().out == ("32 tokens compared\nverdict\nsettings: model.residency = 25% (--residency)\n")
    assert engine.sent[-1] == Verify(1, 8)
    assert isinstance(engine.sent[0], Load)
    assert engine.sent[0].config.residency == 0.25


def test_bench_overhead_as_json(play: Callable[[Play], FakeEngine], capsys: pytest.CaptureFixture[str]) -> None:
    engine = play(lambda engine, command: engine.tell(TaskEnded(1, True, {"tpot_ratio": 0.9}, ("0.9x",))))
    assert cli.main(["bench", "overhead", "--rounds", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"is_ok": True, "tpot_ratio": 0.9}
    assert engine.sent[-1] == BenchOverhead(1, 3)


def test_a_second_instance_is_said(
    play: Callable[[Play], FakeEngine], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from app.process.instance import InstanceLock
    from app.storage.paths import AppPaths

    lock = InstanceLock(AppPaths.from_environment().instance_lock)
    lock.acquire()
    play(say_paris)
    assert cli.main(["ask", "hi"]) == 0
    assert "each takes its own memory" in capsys.readouterr().err
    lock.release()


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--quick"], BenchPolicies(1, True, ("A",))),
        ([], BenchPolicies(1, False, ("A", "B", "own"))),
        (["policies", "--links", "own,0.5GB/s"], BenchPolicies(1, False, ("own", "0.5GB/s"))),
    ],
)
def test_bench_compares_the_policies_by_default(
    flags: list[str],
    expected: BenchPolicies,
    play: Callable[[Play], FakeEngine],
    capsys: pytest.CaptureFixture[str],
) -> None:
    engine = play(lambda engine, command: engine.tell(TaskEnded(1, True, {"is_exact": True}, ("a table",))))
    assert cli.main(["bench", *flags]) == 0
    assert engine.sent[-1] == expected
    assert capsys.readouterr().out == "a table\n"


def test_what_is_measured_follows_the_settings_and_names_them(
    play: Callable[[Play], FakeEngine],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = AppPaths.from_environment().settings_file
    settings.parent.mkdir(parents=True)
    settings.write_text('[offload]\neviction = "lru"\nalpha = 0.05\nprefetch_depth = 3\nnosuch = 1\n')
    monkeypatch.setenv("MOE_CHAT_PREFETCH_DEPTH", "2")
    engine = play(lambda engine, command: engine.tell(TaskEnded(1, True, {"rows": 1}, ("a table",))))
    assert cli.main(["bench", "--residency", "25%"]) == 0
    printed = capsys.readouterr()
    assert "line 5: offload.nosuch is not known" in printed.err
    assert isinstance(engine.sent[0], Load)
    config = engine.sent[0].config
    assert (config.eviction, config.prefetch_depth, config.residency) == ("lru", 2, 0.25)
    expected = {
        "model.residency": "25% (--residency)",
        "offload.eviction": "lru (settings.toml)",
        "offload.prefetch_depth": "2 (MOE_CHAT_PREFETCH_DEPTH)",
    }
    told = printed.out.splitlines()[-1]
    assert told == "settings: " + ", ".join(f"{key} = {text}" for key, text in expected.items())
    play(lambda engine, command: engine.tell(TaskEnded(1, True, {"rows": 1}, ("a table",))))
    assert cli.main(["bench", "--json", "--residency", "25%"]) == 0
    assert json.loads(capsys.readouterr().out) == {"is_ok": True, "settings": expected, "rows": 1}


def test_ask_is_in_the_domain_of_the_settings(
    play: Callable[[Play], FakeEngine], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOE_CHAT_DOMAIN", "maths")
    engine = play(say_paris)
    assert cli.main(["ask", "1+1"]) == 0
    assert "mathematics" in engine.submitted()[0].messages[0].content
    engine = play(say_paris)
    assert cli.main(["ask", "--domain", "code", "1+1"]) == 0
    assert "mathematics" not in engine.submitted()[0].messages[0].content
    monkeypatch.setenv("MOE_CHAT_DOMAIN", "astrology")
    assert cli.main(["ask", "1+1"]) == usage.EXIT_USAGE
    assert "MOE_CHAT_DOMAIN" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["verify"], ["doctor"]])
def test_what_another_request_says_is_not_this_ones(
    command: list[str], play: Callable[[Play], FakeEngine], capsys: pytest.CaptureFixture[str]
) -> None:
    play(
        lambda engine, _: engine.tell(TaskEnded(9, False, {"checks": []}, ("of another",)), TaskEnded(1, True, {}, ()))
    )
    assert cli.main(command) == 0
    assert "of another" not in capsys.readouterr().out
