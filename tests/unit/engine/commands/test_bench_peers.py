"""What the bench of peers makes of runs, and how runs end."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.cli.arguments.parser import build_parser
from app.cli.commands.requests import _peers
from engine.api import BenchPeers, Message
from engine.commands.bench.peers import peers
from engine.commands.bench.peers.memory_group import MemoryGroup, NoGroupError
from engine.commands.bench.peers.page_cache import cached_share, files_of_model, make_cold
from engine.commands.bench.peers.request import Prompt, SideRequest
from engine.commands.bench.peers.run import PeerRun, run_side
from engine.commands.bench.peers.table import OURS, Measured, is_same_text, lines_of_table, ratios, rows_of
from engine.config import EngineConfig
from engine.errors import ConfigError
from offload.errors import WaitCancelled

GIB = 2**30
RUN = PeerRun("done", 0.0, 900.0, 2000.0, 50.0, 8, 200, GIB, "a text", {})
ROOT = Path(__file__).parents[4]


@pytest.fixture
def request_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SideRequest:
    """Of a side that is a module in `tmp_path`."""
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF" * 4096)
    prompt = Prompt((Message("user", "Hello"),), "<user>Hello", 3)
    return SideRequest(prompt, EngineConfig(model=str(file), compute_threads=1), 4)


def run(request: SideRequest, tmp_path: Path, code: str, limit_s: float = 60.0, **options: Any) -> PeerRun:
    begin = "from engine.commands.bench.peers.request import begin_side\nrequest, tell = begin_side()\n"
    (tmp_path / "side.py").write_text(begin + code)
    return run_side("side", request, options.get("group"), limit_s, options.get("is_cancelled", lambda: False))


def test_a_run_says_what_its_side_told(request_for: SideRequest, tmp_path: Path) -> None:
    found = run(
        request_for,
        tmp_path,
        "assert request.prompt.messages[0].content == 'Hello'\n"
        "tell({'stage': 'reading', 'load_ms': 5.0})\n"
        "tell({'stage': 'writing', 'ttft_ms': 9.0, 'prompt_tok': 3})\n"
        "for step_ms in (1.0, 7.0, 3.0): tell({'step_ms': step_ms})\n"
        "tell({'stage': 'done', 'text': 'text', 'peak_rss_bytes': 77})\n",
    )
    assert found.is_done
    assert (found.load_ms, found.ttft_ms, found.tpot_ms, found.num_tok) == (5.0, 9.0, 3.0, 4)
    assert (found.text, found.peak_bytes, found.prompt_tok) == ("text", 77, 3)
    assert found.cached_before == 0.0 or not Path("/proc/sys/vm/drop_caches").exists()


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("tell({'error': 'llama.cpp refuses it.'})", "llama.cpp refuses it."),
        ("import os; tell({'stage': 'writing'}); os.kill(os.getpid(), 9)", "ended by SIGKILL while writing"),
        ("raise SystemExit(3)", "ended by exit code 3 while loading"),
    ],
)
def test_a_run_that_ends_badly_says_how(request_for: SideRequest, tmp_path: Path, code: str, outcome: str) -> None:
    assert run(request_for, tmp_path, code).outcome == outcome


def test_a_run_is_stopped_after_its_time_and_by_the_user(request_for: SideRequest, tmp_path: Path) -> None:
    endless = "import threading; threading.Event().wait()"
    assert run(request_for, tmp_path, endless, limit_s=0.0).outcome == "stopped after 0 s, while loading"
    with pytest.raises(WaitCancelled):
        run(request_for, tmp_path, endless, is_cancelled=lambda: True)


@pytest.mark.skipif(sys.platform != "linux", reason="memory groups are Linux's")
def test_over_its_group_a_side_is_killed_and_the_peak_is_the_groups(request_for: SideRequest, tmp_path: Path) -> None:
    try:
        group = MemoryGroup("test", 64 << 20)
    except NoGroupError as error:
        pytest.skip(str(error))
    try:
        found = run(request_for, tmp_path, "tell({'stage': 'writing'}); b'x' * (256 << 20)", group=group)
    finally:
        group.remove()
    assert found.outcome == "killed for memory while writing"
    assert found.peak_bytes is not None
    assert found.peak_bytes <= 64 << 20


def test_a_cold_file_is_not_in_memory(tmp_path: Path) -> None:
    part = tmp_path / "model-00001-of-00002.gguf"
    other = tmp_path / "model-00002-of-00002.gguf"
    for path in (part, other):
        path.write_bytes(bytes(1 << 20))
    files = files_of_model(part)
    assert files == (part, other)
    assert cached_share(files) == 1.0
    assert make_cold(files) == cached_share(files)


def test_requests_cross_the_command_line_unchanged(request_for: SideRequest) -> None:
    request = replace(request_for, is_repacked=True, procs_file="/somewhere")
    assert SideRequest.from_json(request.to_json()) == request


def test_the_table_has_medians_ratios_and_failures() -> None:
    killed = replace(RUN, outcome="killed for memory while loading", ttft_ms=None, tpot_ms=None, text="")
    slow = replace(RUN, tpot_ms=1000.0, text="a text\ufffd and more")
    rows = rows_of(
        [
            *(Measured(3 * GIB, OURS, replace(RUN, tpot_ms=tpot_ms)) for tpot_ms in (40.0, 50.0, 90.0)),
            Measured(3 * GIB, "mapped", slow),
            Measured(3 * GIB, "repacked", killed),
        ]
    )
    mapped, repacked = ratios(rows)
    assert (mapped["tpot"], mapped["ttft"], mapped["is_same_text"]) == (20.0, 1.0, True)
    assert (repacked["tpot"], repacked["is_same_text"]) == (None, None)
    text = "\n".join(lines_of_table(rows))
    assert "50.0 ms" in text
    assert "killed for memory while loading" in text
    assert "mapped over moe-chat, 3.0 GiB: TPOT 20.00x, TTFT 1.00x; the same text" in text


def test_another_text_is_told() -> None:
    assert is_same_text([replace(RUN, text="a b")], [replace(RUN, text="a c d")]) is False


def test_a_killed_side_is_not_run_again_and_who_goes_first_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    order: list[str] = []

    def pretend(side: Any, request: SideRequest, limit_bytes: int | None, is_cancelled: object) -> PeerRun:
        order.append(side.name)
        return replace(RUN, outcome="killed" if side.is_repacked else "done")

    monkeypatch.setenv("MOE_CHAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(peers, "_run", pretend)
    monkeypatch.setattr(peers, "_fitted_prompt", lambda path, wanted_tok: Prompt((), "", wanted_tok))
    command = BenchPeers(1, EngineConfig(model=str(file)), (None,), num_rounds=2)
    outcome = peers.bench_peers(command, lambda stage, done, total: None, lambda: False)
    assert order == [OURS, "llama.cpp mapped", "llama.cpp repacked", "llama.cpp mapped", OURS]
    assert outcome.is_ok
    assert outcome.report["prompt_tok"] == 200


def test_an_interrupted_bench_goes_on_where_it_was_and_a_tighter_limit_kills_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOE_CHAT_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    order: list[tuple[str, int | None]] = []

    def pretend(side: Any, request: SideRequest, limit_bytes: int | None, is_cancelled: object) -> PeerRun:
        if len(order) == 3:
            order.append(("interrupt", None))
            raise WaitCancelled("Stopped.")
        order.append((side.name, limit_bytes))
        outcome = "killed for memory while loading" if side.is_repacked else "done"
        return replace(RUN, outcome=outcome, wall_s=7.0)

    monkeypatch.setattr(peers, "_run", pretend)
    monkeypatch.setattr(peers, "_fitted_prompt", lambda path, wanted_tok: Prompt((), "", wanted_tok))
    monkeypatch.setattr(peers, "_possible_limits", lambda limits: (limits, ""))
    command = BenchPeers(1, EngineConfig(model=str(file)), (3 * GIB, 2 * GIB), num_rounds=1)
    with pytest.raises(WaitCancelled):
        peers.bench_peers(command, lambda stage, done, total: None, lambda: False)
    said: list[str] = []
    outcome = peers.bench_peers(command, lambda stage, done, total: said.append(stage), lambda: False)
    three = [(OURS, 3 * GIB), ("llama.cpp mapped", 3 * GIB), ("llama.cpp repacked", 3 * GIB)]
    assert order == [*three, ("interrupt", None), (OURS, 2 * GIB), ("llama.cpp mapped", 2 * GIB)]
    text = "\n".join(outcome.lines)
    assert "3 runs are of an earlier bench, which was interrupted" in text
    assert f"35 s in all: {OURS} 7 + 7, llama.cpp mapped 7 + 7, llama.cpp repacked 7" in text
    assert f"llama.cpp mapped, 2.0 GiB (before: {OURS} TTFT 2.00 s, TPOT 50.0 ms, 7 s in all)" in said
    assert not list((tmp_path / "cache" / "bench-peers").iterdir())


def test_limits_that_cannot_be_set_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, limit_bytes: int | None) -> SimpleNamespace:
        raise NoGroupError("it takes root")

    monkeypatch.setattr(peers, "MemoryGroup", refuse)
    assert peers._possible_limits((None, 2 * GIB)) == ((None,), "not run under 2.0 GiB: it takes root")


def test_the_command_line() -> None:
    arguments = build_parser().parse_args(["bench", "peers", "a.gguf", "--tokens", "8", "--quick"])
    asked = _peers(arguments, EngineConfig(memory_bytes=3 * GIB))
    assert (asked.config.model, asked.limits_bytes, asked.num_rounds, asked.new_tok) == (
        "a.gguf",
        (None, 3 * GIB),
        1,
        8,
    )
    arguments = build_parser().parse_args(["bench", "peers", "a.gguf", "--groups", "none,2GiB"])
    assert _peers(arguments, EngineConfig()).limits_bytes == (None, 2 * GIB)
    with pytest.raises(ConfigError):
        _peers(build_parser().parse_args(["bench", "peers", "a.gguf", "--rounds", "0"]), EngineConfig())
