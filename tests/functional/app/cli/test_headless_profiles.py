"""`profile`, `plan`, and a domain's profile in `ask`, on a fake engine."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from app.cli import main as cli
from app.cli import usage
from engine.api import BuildProfile, DeleteProfile, Load, Plan, ShowProfile
from engine.events import DomainSet, Failed, Profiles, ProfileState, TaskEnded, TaskProgress
from tests.functional.app.fake_engine import FakeEngine
from tests.functional.app.played_engine import Play, say_paris

Install = Callable[[Play], FakeEngine]

ENDED = TaskEnded(1, True, {"domain": "maths"}, ("first line", "second line"))


def test_build_a_domains_profile(play: Install, capsys: pytest.CaptureFixture[str]) -> None:
    engine = play(lambda engine, command: engine.tell(TaskProgress(1, "recording", 3, 5), ENDED, Profiles(())))
    argv = ["profile", "build", "--domain", "maths", "--max-prompts", "5", "--tokens", "8", "--residency", "25%"]
    assert cli.main(argv) == usage.EXIT_OK
    assert capsys.readouterr().out == "first line\nsecond line\n"
    load, build = engine.sent
    assert build == BuildProfile(1, "maths", None, 5, 8)
    assert isinstance(load, Load)
    assert load.config.residency == 0.25
    assert engine.is_closed


def test_build_by_default(play: Install) -> None:
    engine = play(lambda engine, command: engine.tell(ENDED))
    assert cli.main(["profile", "build"]) == usage.EXIT_OK
    assert engine.sent[-1] == BuildProfile(1, "general", None, None, 48)


def test_build_from_a_file(play: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = tmp_path / "mine.jsonl"
    prompts.write_text('{"prompt": "hi"}\n')
    monkeypatch.chdir(tmp_path)
    engine = play(lambda engine, command: engine.tell(ENDED))
    assert cli.main(["profile", "build", "--prompts", "mine.jsonl", "--name", "mine"]) == usage.EXIT_OK
    assert engine.sent[-1] == BuildProfile(1, "mine", str(prompts), None, 48)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--prompts", "x.jsonl"], "--name"),
        (["--name", "mine"], "--prompts"),
        (["--domain", "maths", "--name", "mine"], "contradicts"),
        (["--prompts", "nowhere.jsonl", "--name", "mine"], "no file nowhere.jsonl"),
        (["--domain", "astrology"], "astrology"),
        (["--max-prompts", "0"], "--max-prompts is 0"),
        (["--tokens", "-1"], "--tokens is -1"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_loaded(
    play: Install, capsys: pytest.CaptureFixture[str], argv: list[str], words: str
) -> None:
    engine = play(lambda engine, command: engine.tell(ENDED))
    assert cli.main(["profile", "build", *argv]) == usage.EXIT_USAGE
    assert words in capsys.readouterr().err
    assert not engine.is_started


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (["list"], ShowProfile(1)),
        (["show", "maths"], ShowProfile(1, "maths")),
        (["delete", "maths"], DeleteProfile(1, "maths")),
    ],
)
def test_list_show_delete(
    play: Install, capsys: pytest.CaptureFixture[str], argv: list[str], command: ShowProfile | DeleteProfile
) -> None:
    engine = play(lambda engine, command: engine.tell(ENDED))
    assert cli.main(["profile", *argv]) == usage.EXIT_OK
    assert engine.sent[-1] == command
    assert capsys.readouterr().out == "first line\nsecond line\n"
    play(lambda engine, command: engine.tell(ENDED))
    assert cli.main(["profile", *argv, "--json"]) == usage.EXIT_OK
    assert json.loads(capsys.readouterr().out) == {"is_ok": True, "domain": "maths"}


def test_what_the_engine_finds_wrong_with_the_settings_is_wrong_usage(
    play: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    failure = Failed(1, "Settings", "There is no profile 'x'; there are: none.", "Build it.", is_fatal=False)
    play(lambda engine, command: engine.tell(failure))
    assert cli.main(["profile", "show", "x"]) == usage.EXIT_USAGE
    assert "There is no profile 'x'" in capsys.readouterr().err


def test_ctrl_c_ends_building_and_prints_no_report(play: Install, capsys: pytest.CaptureFixture[str]) -> None:
    def script(engine: FakeEngine, command: object) -> None:
        if isinstance(command, BuildProfile):
            engine.tell(TaskProgress(1, "recording", 1, 40))
            os.kill(os.getpid(), signal.SIGINT)
            engine.tell(ENDED)

    engine = play(script)
    assert cli.main(["profile", "build"]) == usage.EXIT_INTERRUPTED
    assert engine.is_closed
    assert capsys.readouterr().out == ""


def test_plan_loads_nothing(play: Install, capsys: pytest.CaptureFixture[str]) -> None:
    engine = play(lambda engine, command: engine.tell(TaskProgress(1, "reading", 0, 0), ENDED))
    assert cli.main(["plan", "--memory", "1GiB"]) == usage.EXIT_OK
    (plan,) = engine.sent
    assert isinstance(plan, Plan)
    assert plan.config.memory_bytes == 2**30
    assert capsys.readouterr().out == "first line\nsecond line\n"
    assert engine.is_closed


def test_a_plan_that_cannot_be_made(play: Install, capsys: pytest.CaptureFixture[str]) -> None:
    failure = Failed(1, "The memory budget is too small", "829 MiB are needed.", "--memory 829MiB", is_fatal=False)
    play(lambda engine, command: engine.tell(failure))
    assert cli.main(["plan", "--memory", "1MiB", "--json"]) == usage.EXIT_FAILED
    assert "829 MiB are needed" in capsys.readouterr().err


def test_ask_warms_the_cache_by_the_domains_profile(play: Install, capsys: pytest.CaptureFixture[str]) -> None:
    engine = play(say_paris)
    engine.tell(DomainSet("maths", 62, 0.88))
    assert cli.main(["ask", "--domain", "maths", "1+1"]) == usage.EXIT_OK
    assert isinstance(engine.sent[0], Load)
    assert engine.sent[0].config.domain == "maths"
    printed = capsys.readouterr()
    assert printed.out == "It is Paris.\n"
    assert "cache warmed for Maths: 62 experts loaded, expected hit rate 88 %" in printed.err
    engine = play(say_paris)
    engine.tell(DomainSet("maths", None, None))
    assert cli.main(["ask", "--json", "--domain", "maths", "1+1"]) == usage.EXIT_OK
    printed = capsys.readouterr()
    assert json.loads(printed.out.splitlines()[1]) == {
        "event": "domain",
        "domain": "maths",
        "num_warmed": None,
        "expected_hit_rate": None,
    }
    assert "cache" not in printed.err


def test_ask_says_why_a_profile_is_not_used(play: Install, capsys: pytest.CaptureFixture[str]) -> None:
    engine = play(say_paris)
    engine.profiles = (ProfileState("maths", None, 0, "It is damaged."), ProfileState("code", None, 0, "So is this."))
    assert cli.main(["ask", "--domain", "maths", "1+1"]) == usage.EXIT_OK
    told = capsys.readouterr().err
    assert "The profile of Maths cannot be used: It is damaged." in told
    assert "So is this" not in told
