"""The command line: what it reads, refuses, prints, and what importing it costs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import platformdirs
import pytest

from app.cli import main as cli
from app.cli import usage
from app.domains.domain import all_domains, domain_named
from app.process.crash_log import log_crash
from app.process.instance import InstanceLock
from app.settings.settings import Settings
from app.storage.paths import AppPaths
from engine.config import APPROX, DEMO_MODEL
from engine.errors import ConfigError


def set_by(argv: list[str]) -> Settings:
    return Settings.of(cli.build_parser().parse_args(argv), {"MOE_CHAT_HOME": "/nowhere"})


def test_the_demo_keeps_half_of_its_experts_out() -> None:
    config = set_by([]).engine_config()
    assert (config.model, config.residency, config.memory_bytes) == (DEMO_MODEL, 0.5, None)


@pytest.mark.parametrize(
    ("argv", "residency", "memory_bytes"),
    [
        (["--memory", "1GiB"], None, 2**30),
        (["--residency", "25%"], 0.25, None),
        (["--model", "some/folder"], None, None),
        (["ask", "--memory", "1GiB", "hi"], None, 2**30),
        (["--memory", "1GiB", "ask", "hi"], None, 2**30),
    ],
)
def test_budget_options(argv: list[str], residency: float | None, memory_bytes: int | None) -> None:
    config = set_by(argv).engine_config()
    assert (config.residency, config.memory_bytes) == (residency, memory_bytes)


def test_every_option_arrives() -> None:
    argv = "--mode APPROX --alpha 0.1 --eviction lru --prefetch none --prefetch-depth 3 --link 0.5GB/s --threads 2"
    config = set_by([*argv.split(), "--link-threads", "1", "--context", "99"]).engine_config()
    assert (config.mode, config.alpha, config.eviction, config.prefetch, config.prefetch_depth) == (
        APPROX,
        0.1,
        "lru",
        "none",
        3,
    )
    assert (config.link_bytes_per_s, config.compute_threads, config.link_threads, config.context_tok) == (5e8, 2, 1, 99)


@pytest.mark.parametrize(
    ("short", "long"),
    [
        (["-m", "x"], ["--model", "x"]),
        (
            ["ask", "-m", "x", "-s", "be brief", "-d", "maths", "hi"],
            ["ask", "--model", "x", "--system", "be brief", "--domain", "maths", "hi"],
        ),
        (["chats", "delete", "-y", "x"], ["chats", "delete", "--yes", "x"]),
        (["clean", "-y"], ["clean", "--yes"]),
    ],
)
def test_short_flags(short: list[str], long: list[str]) -> None:
    assert cli.build_parser().parse_args(short) == cli.build_parser().parse_args(long)


def test_sampling_is_the_models_own_unless_given() -> None:
    assert set_by(["ask", "hi"]).sampling().temperature is None
    given = "--temperature 0 --top-p 0.9 --top-k 5 --min-p 0.1 --seed 7 --max-tokens 9 --stop A --stop B"
    sampling = set_by(["ask", *given.split(), "hi"]).sampling()
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed, sampling.max_new_tok) == (
        0,
        0.9,
        5,
        7,
        9,
    )
    assert sampling.stop == ("A", "B")


@pytest.mark.parametrize(
    "argv",
    [
        ["--memory", "1GiB", "--residency", "50%"],
        ["--memory", "lots"],
        ["--threads", "two"],
        ["--eviction", "random"],
        ["--mode", "fast"],
    ],
)
def test_bad_settings_exit_2_and_say_what_to_do(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ask", *argv, "hi"]) == usage.EXIT_USAGE
    told = capsys.readouterr().err
    assert told.startswith("Settings: ")
    assert "Traceback" not in told
    assert len(told.splitlines()) == 2


def test_the_chat_needs_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == usage.EXIT_USAGE
    assert "moe-chat ask" in capsys.readouterr().err


def test_paths_are_printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MOE_CHAT_HOME", str(tmp_path))
    monkeypatch.delenv("MOE_CHAT_CACHE", raising=False)
    assert cli.main(["paths"]) == usage.EXIT_OK
    printed = capsys.readouterr().out
    assert str(tmp_path / "data" / "chats.db") in printed
    assert str(tmp_path / "data" / "profiles") in printed
    assert str(platformdirs.user_cache_path("moe-chat")) in printed


def test_the_cache_can_be_elsewhere(tmp_path: Path) -> None:
    environment = {"MOE_CHAT_HOME": str(tmp_path / "home"), "MOE_CHAT_CACHE": str(tmp_path / "big")}
    paths = AppPaths.from_environment(environment)
    assert paths.cache_dir == tmp_path / "big"
    assert paths.app_log.is_relative_to(tmp_path / "home")


def test_a_crash_goes_to_the_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MOE_CHAT_HOME", str(tmp_path))
    log = AppPaths.from_environment().app_log
    told = log_crash(ZeroDivisionError("deep inside"))
    assert str(log) in told
    assert "deep inside" not in told
    assert "ZeroDivisionError: deep inside" in log.read_text()


def test_an_unexpected_error_shows_no_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def explode(_: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setenv("MOE_CHAT_HOME", str(tmp_path))
    monkeypatch.setattr(cli, "_run", explode)
    assert cli.main(["paths"]) == usage.EXIT_FAILED
    told = capsys.readouterr().err
    assert "Traceback" not in told
    assert "moe-chat.log" in told


def test_every_later_instance_is_told_and_may_run(tmp_path: Path) -> None:
    first, second, third, fourth = (InstanceLock(tmp_path / "home" / "pid") for _ in range(4))
    assert first.acquire() == ""
    assert "each takes its own memory" in second.acquire()
    first.release()
    assert "each takes its own memory" in third.acquire()
    second.release()
    third.release()
    assert fourth.acquire() == ""
    fourth.release()


def test_an_instance_names_the_others_that_live(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    first, second = InstanceLock(path), InstanceLock(path)
    first.acquire()
    path.write_text(f"{os.getppid()}\n{2**30}\n", encoding="utf-8")
    assert f"running (process {os.getppid()});" in second.acquire()
    first.release()
    second.release()


def test_nobody_is_alone_while_an_instance_runs(tmp_path: Path) -> None:
    first, second, cleaner = (InstanceLock(tmp_path / "pid") for _ in range(3))
    first.acquire()
    second.acquire()
    first.release()
    assert not cleaner.acquire_alone()
    second.release()
    assert cleaner.acquire_alone()
    cleaner.release()


def test_domains() -> None:
    names = [domain.name for domain in all_domains()]
    assert names[0] == "general"
    assert len(names) == len(set(names)) == 7
    assert all(domain.purpose and len(domain.purpose) <= 39 for domain in all_domains())
    assert domain_named("maths").title == "Maths"
    with pytest.raises(ConfigError, match="astrology"):
        domain_named("astrology")


def test_the_command_line_is_light() -> None:
    heavy = "{'torch', 'textual', 'transformers', 'rich', 'numpy', 'sqlite3'}"
    code = f"import sys, app.cli.main; app.cli.main.build_parser().format_help(); print({heavy} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


def test_the_headless_commands_load_no_screen() -> None:
    heavy = "{'torch', 'textual', 'transformers'}"
    code = f"import sys, app.cli.commands.ask, app.cli.commands.tasks; print({heavy} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


def test_the_chat_loads_no_torch() -> None:
    code = "import sys, app.ui.launch, app.ui.chat_app; print({'torch', 'transformers', 'numpy'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["frobnicate"], "there is no command 'frobnicate'"),
        (["ask", "--bogus", "hi"], "--bogus"),
        (["chats"], "list, search, show"),
    ],
)
def test_wrong_usage_is_said_first_and_briefly(argv: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(argv)
    lines = capsys.readouterr().err.splitlines()
    assert ended.value.code == usage.EXIT_USAGE
    assert told in lines[0]
    assert len(lines) == 2
    assert "--help" in lines[1]
