"""`moe-chat paths`, `clean`, `doctor`, `presets` and `completion`."""

from __future__ import annotations

import fcntl
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app.cli import engine_run, usage
from app.cli import main as cli
from app.cli.commands import doctor
from app.process.instance import InstanceLock
from app.settings.presets import Preset, Presets
from app.storage.paths import AppPaths
from app.storage.records import ChatRecord, TurnRecord
from app.storage.store import ChatStore
from engine.api import Diagnose
from engine.events import Failed, TaskEnded, TaskProgress
from tests.functional.app.fake_engine import FakeEngine
from tests.functional.app.played_engine import Play, PlayedEngine

_SIZE = 64 * 1024


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AppPaths:
    """A home with something everywhere, and a hub cache with a model and an unfinished download."""
    monkeypatch.setenv("MOE_CHAT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MOE_CHAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    paths = AppPaths.from_environment()
    model = tmp_path / "hub" / "models--owner--name"
    for path in (
        tmp_path / "cache" / "demo-1" / "model.safetensors",
        tmp_path / "cache" / ".demo-building-x" / "weights.gguf",
        paths.profiles_dir / "demo" / "maths.npz",
        paths.data_dir / "chats.damaged-1.db",
        paths.app_log,
        paths.engine_log,
        model / "blobs" / "abc",
        model / "blobs" / "abc.1.incomplete",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * _SIZE)
    (model / "snapshots").mkdir()
    (model / "snapshots" / "model.safetensors").symlink_to("../blobs/abc")
    store, chat = ChatStore(paths.chats_db), ChatRecord("general", "", "demo")
    store.save_whole(chat, [TurnRecord(chat.chat_id, 0, "user", "kept")])
    store.close()
    return paths


def _hub(paths: AppPaths) -> Path:
    return paths.cache_dir.parent / "hub" / "models--owner--name"


class Typed(io.StringIO):
    """Somebody at a terminal."""

    def isatty(self) -> bool:
        return True


def _type(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr("sys.stdin", Typed("".join(f"{line}\n" for line in lines)))


def test_paths_have_sizes(paths: AppPaths, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["paths"]) == 0
    lines = {line.split("  ")[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "64.0 KiB" in lines["app log"]
    assert lines["settings"].split()[1] == "–"
    assert cli.main(["paths", "--json"]) == 0
    sizes = {place["name"]: place["used_bytes"] for place in json.loads(capsys.readouterr().out)}
    assert sizes["settings"] is None
    assert 2 * _SIZE <= sizes["cache"] < 4 * _SIZE


def test_the_list_says_what_takes_how_much(paths: AppPaths, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["clean", "--list", "--json"]) == 0
    sizes = {place["name"]: place["used_bytes"] for place in json.loads(capsys.readouterr().out)}
    assert sizes["downloads"] == sizes["logs"] == 2 * _SIZE
    assert sizes["profiles"] == sizes["damaged"] == _SIZE
    assert 2 * _SIZE <= sizes["owner/name"] < 3 * _SIZE
    assert sizes["chats"] > 0
    assert cli.main(["clean", "--list"]) == 0
    assert "owner/name" in capsys.readouterr().out


def test_nothing_is_freed_without_a_yes(
    paths: AppPaths, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _type(monkeypatch, "n", "", "no")
    assert cli.main(["clean"]) == 0
    printed = capsys.readouterr()
    assert printed.out.endswith("0 B freed.\n")
    assert printed.err.count("[y/N]") == 3
    assert (paths.cache_dir / "demo-1").exists()


def test_what_can_be_had_again_is_freed_without_names(paths: AppPaths, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["clean", "--yes"]) == 0
    assert "320 KiB freed." in capsys.readouterr().out
    assert not list(paths.cache_dir.glob("demo*"))
    assert not list(paths.cache_dir.glob(".demo*"))
    assert not list(_hub(paths).glob("blobs/*.incomplete"))
    assert not paths.app_log.exists()
    assert (_hub(paths) / "blobs" / "abc").exists()
    assert paths.profiles_dir.exists()
    assert paths.chats_db.exists()
    assert list(paths.data_dir.glob("chats.damaged-*"))


def test_chats_profiles_and_models_are_freed_by_name_only(
    paths: AppPaths, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _type(monkeypatch, "y", "y", "y")
    assert cli.main(["clean", "chats", "profiles", "owner/name"]) == 0
    assert "1 chat, which cannot be undone" in capsys.readouterr().err
    assert not paths.chats_db.exists()
    assert not paths.profiles_dir.exists()
    assert not _hub(paths).exists()
    assert (paths.cache_dir / "demo-1").exists()


def test_an_unknown_name_frees_nothing(paths: AppPaths, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["clean", "demo", "everything", "--yes"]) == usage.EXIT_USAGE
    assert "Choose from downloads, logs, demo" in capsys.readouterr().err
    assert (paths.cache_dir / "demo-1").exists()


def test_what_is_in_use_stays(paths: AppPaths, capsys: pytest.CaptureFixture[str]) -> None:
    running = InstanceLock(paths.instance_lock)
    running.acquire()
    locks = _hub(paths).parent / ".locks" / _hub(paths).name
    locks.mkdir(parents=True)
    with (locks / "abc.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert cli.main(["clean", "demo", "downloads", "--yes"]) == 0
    running.release()
    printed = capsys.readouterr()
    assert "a moe-chat is running" in printed.err
    assert "another program is writing it" in printed.err
    assert (paths.cache_dir / "demo-1").exists()
    assert (_hub(paths) / "blobs" / "abc.1.incomplete").exists()
    assert not (paths.cache_dir / ".demo-building-x").exists()


def test_the_chats_of_a_second_instance_stay(paths: AppPaths, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = InstanceLock(paths.instance_lock), InstanceLock(paths.instance_lock)
    first.acquire()
    second.acquire()
    first.release()
    assert cli.main(["clean", "chats", "--yes"]) == 0
    second.release()
    assert "chats: a moe-chat is running" in capsys.readouterr().err
    assert paths.chats_db.exists()


_CHECKS = [
    {"name": "device", "verdict": "ok", "found": "cpu, 2 threads", "advice": ""},
    {"name": "memory", "verdict": "warn", "found": "1.0 GiB free", "advice": "Close something."},
]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, paths: AppPaths) -> Callable[[Play], FakeEngine]:
    def install(script: Play) -> FakeEngine:
        engine = PlayedEngine(script)
        monkeypatch.setattr(engine_run, "make_link", lambda paths: engine)
        return engine

    return install


def test_doctor_prints_both_sides_checks(
    play: Callable[[Play], FakeEngine], capsys: pytest.CaptureFixture[str]
) -> None:
    ended = TaskEnded(1, True, {"checks": _CHECKS}, ())
    engine = play(lambda engine, command: engine.tell(TaskProgress(1, "measuring", 1, 2), ended))
    assert cli.main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "✓ ok    device         cpu, 2 threads" in out
    assert "! warn  memory         1.0 GiB free\n" + " " * 22 + "Close something." in out
    assert "✓ ok    chats          1 in " in out
    assert isinstance(engine.sent[0], Diagnose)
    assert engine.is_closed


def test_a_failed_check_is_exit_1(play: Callable[[Play], FakeEngine], capsys: pytest.CaptureFixture[str]) -> None:
    failed = {"name": "model", "verdict": "fail", "found": "does not fit", "advice": "Give it 2 GiB."}
    play(lambda engine, command: engine.tell(TaskEnded(1, False, {"checks": [failed]}, ())))
    assert cli.main(["doctor", "--json"]) == usage.EXIT_FAILED
    report = json.loads(capsys.readouterr().out)
    assert report["is_ok"] is False
    assert report["checks"][-1] == failed


@pytest.mark.parametrize("how", ["no process", "dies", "silent"])
def test_without_an_engine_doctor_prints_what_it_can(
    how: str, play: Callable[[Play], FakeEngine], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    death = Failed(None, "The engine stopped", "Its process was killed.", "Start it again.", is_fatal=True)
    engine = play(lambda engine, command: engine.tell(death) if how == "dies" else None)
    if how == "no process":

        def refuse() -> None:
            raise OSError("no more processes")

        monkeypatch.setattr(engine, "start", refuse)
    monkeypatch.setattr(doctor, "_PATIENCE_S", 0.01)
    assert cli.main(["doctor"]) == usage.EXIT_FAILED
    out = capsys.readouterr().out
    assert "✓ ok    chats" in out
    assert "✗ fail  engine" in out


def test_doctor_finds_a_damaged_database(play: Callable[[Play], FakeEngine], paths: AppPaths) -> None:
    paths.chats_db.write_bytes(b"garbage" * 1000)
    play(lambda engine, command: engine.tell(TaskEnded(1, True, {"checks": []}, ())))
    assert cli.main(["doctor"]) == usage.EXIT_FAILED
    assert paths.chats_db.read_bytes() == b"garbage" * 1000


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_scripts(shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in (
        "chats",
        "search",
        "--residency",
        "router-ahead",
        "competition",
        "doctor",
        "chats list --ids",
        "presets --names",
    ):
        assert word in script
    if shutil.which(shell) is not None:
        (tmp_path / "script").write_text(script)
        subprocess.run([shell, "-n", str(tmp_path / "script")], check=True)


def test_presets_are_listed_by_name(paths: AppPaths, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["presets"]) == 0
    assert "/preset save" in capsys.readouterr().err
    presets = Presets(paths.presets_dir)
    presets.save(Preset("brief", {"chat.system_prompt": "Be brief.", "sampling.temperature": 0.2}))
    (paths.presets_dir / "broken.toml").write_text("[sampling]\ntemperature = 'hot'\n")
    assert cli.main(["presets", "--names"]) == 0
    assert capsys.readouterr().out == "brief\nbroken\n"
    assert cli.main(["presets"]) == 0
    told = capsys.readouterr().out
    assert "brief · temperature 0.2 · “Be brief.”" in told
    assert "line 2" in told


def test_completion_is_imported_by_its_command_alone() -> None:
    script = "import sys, app.cli.main; app.cli.main.build_parser(); print('shtab' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "False"
