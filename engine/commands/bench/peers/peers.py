"""`bench peers`: one GGUF through this engine and through llama.cpp, in turn, from a cold file each time.

Under each limit the whole process tree of a run is in one memory group, so the page cache counts too; without a limit
the group only measures. Both sides read the same prompt with the same number of threads and write greedily; who goes
first changes with every round. A side that was killed under a limit is not run again under it, nor under a tighter one.
What has ended is kept until the bench is complete: the same command goes on after an interrupt.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.api import BenchPeers, Message
from engine.backends.ggml.library import WHEEL_VERSION
from engine.commands.bench.peers.kept_runs import KeptRuns, RunKey
from engine.commands.bench.peers.llamacpp_library import NoPeerError
from engine.commands.bench.peers.memory_group import MemoryGroup, NoGroupError
from engine.commands.bench.peers.page_cache import files_of_model
from engine.commands.bench.peers.request import Prompt, SideRequest
from engine.commands.bench.peers.run import KILLED, NOT_FITTING, PeerRun, run_side
from engine.commands.bench.peers.table import OURS, Measured, lines_of_table, ratios, rows_of, run_in_words
from engine.commands.task_outcome import OnTaskProgress, TaskOutcome
from engine.config import format_bytes
from engine.errors import ConfigError

_FOLDER = "engine.commands.bench.peers"
_PARENT_BYTES = 96 << 20
"""Of a group, for the process that the engine belongs to: the chat in its place."""
_RUN_LIMIT_S, _FIT_LIMIT_S = 1800.0, 300.0
NO_STREAMING = (
    "llama.cpp's own expert cache takes a GPU, and its lazy reading leaves experts out: on a CPU it streams by mapping"
)


@dataclass(frozen=True, slots=True)
class _Side:
    name: str
    module: str
    is_repacked: bool = False


_SIDES = (
    _Side(OURS, f"{_FOLDER}.moe_chat_side"),
    _Side("llama.cpp mapped", f"{_FOLDER}.llamacpp_side"),
    _Side("llama.cpp repacked", f"{_FOLDER}.llamacpp_side", is_repacked=True),
)


def bench_peers(command: BenchPeers, on_progress: OnTaskProgress, is_cancelled: Callable[[], bool]) -> TaskOutcome:
    """Raises ConfigError, NoPeerError, WaitCancelled, OSError."""
    path = Path(command.config.model)
    if not path.is_file():
        raise ConfigError(f"{path} is not a file.", "Name a GGUF file.")
    if any(limit_bytes is not None and limit_bytes <= _PARENT_BYTES for limit_bytes in command.limits_bytes):
        raise ConfigError("A group is too small to hold any model.", f"Give more than {format_bytes(_PARENT_BYTES)}.")
    on_progress("reading the file's vocabulary", 0, 0)
    prompt = _fitted_prompt(path, command.prompt_tok)
    threads = command.config.compute_threads or os.cpu_count() or 1
    config = replace(command.config, compute_threads=threads, context_tok=prompt.num_tok + command.new_tok + 16)
    limits, skipped = _possible_limits(command.limits_bytes)
    kept = KeptRuns(SideRequest(prompt, config, command.new_tok), WHEEL_VERSION)
    num_kept, told = len(kept.runs), ""
    size_bytes = sum(part.stat().st_size for part in files_of_model(path))
    schedule = _schedule(command.num_rounds, limits)
    measured: list[Measured] = []
    for done, (key, side) in enumerate(schedule):
        on_progress(f"{side.name}, {_limit_name(key.limit_bytes)}{told}", done, len(schedule))
        run = kept.runs.get(key)
        if run is None:
            if _would_be_killed(measured, key.limit_bytes, side):
                continue
            if side.is_repacked and key.limit_bytes is not None and key.limit_bytes < size_bytes:
                run = NOT_FITTING
            else:
                request = SideRequest(prompt, config, command.new_tok, is_repacked=side.is_repacked)
                run = _run(side, request, key.limit_bytes, is_cancelled)
            kept.add(key, run)
        measured.append(Measured(key.limit_bytes, side.name, run))
        told = f" (before: {side.name} {run_in_words(run)})"
    kept.forget()
    resumed = f"{num_kept} runs are of an earlier bench, which was interrupted" if num_kept else ""
    return _outcome(path, size_bytes, prompt, threads, command, measured, [text for text in (skipped, resumed) if text])


def _schedule(num_rounds: int, limits: Sequence[int | None]) -> list[tuple[RunKey, _Side]]:
    """All runs in order; who goes first changes with every round."""
    return [
        (RunKey(number, limit_bytes, side.name), side)
        for number in range(num_rounds)
        for limit_bytes in limits
        for side in (_SIDES if number % 2 == 0 else reversed(_SIDES))
    ]


def _run(side: _Side, request: SideRequest, limit_bytes: int | None, is_cancelled: Callable[[], bool]) -> PeerRun:
    budget_bytes = None if limit_bytes is None else limit_bytes - _PARENT_BYTES
    request = replace(request, config=replace(request.config, memory_bytes=budget_bytes, residency=None))
    group = None
    try:
        group = MemoryGroup("peers", limit_bytes)
    except NoGroupError as error:
        if limit_bytes is not None:  # without a limit a group only measures
            raise ConfigError(f"The limit cannot be set: {error}.", "Leave --groups out.") from error
    try:
        return run_side(side.module, request, group, _RUN_LIMIT_S, is_cancelled)
    finally:
        if group is not None:
            group.remove()


def _would_be_killed(measured: Sequence[Measured], limit_bytes: int | None, side: _Side) -> bool:
    """Whether it did not end well under this limit, or was killed under one that is no tighter."""

    def tells(one: Measured) -> bool:
        if one.side != side.name or one.run.is_done:
            return False
        if one.limit_bytes == limit_bytes:
            return True
        is_tighter = limit_bytes is not None and one.limit_bytes is not None and limit_bytes < one.limit_bytes
        return is_tighter and one.run.outcome.startswith(KILLED)

    return any(map(tells, measured))


def _possible_limits(limits_bytes: tuple[int | None, ...]) -> tuple[tuple[int | None, ...], str]:
    """The limits that can be set here, and why the others are skipped; empty: none is."""
    wanted = [limit_bytes for limit_bytes in limits_bytes if limit_bytes is not None]
    try:
        for limit_bytes in wanted[:1]:
            MemoryGroup("peers-trial", limit_bytes).remove()
    except NoGroupError as error:
        names = ", ".join(map(format_bytes, wanted))
        return (None,), f"not run under {names}: {error}"
    return limits_bytes, ""


def _fitted_prompt(path: Path, wanted_tok: int) -> Prompt:
    """A question of about so many tokens. Raises NoPeerError."""
    command = [sys.executable, "-P", "-m", f"{_FOLDER}.prompt_fitting", str(os.getpid()), str(path), str(wanted_tok)]
    try:
        said = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=_FIT_LIMIT_S, check=False
        ).stdout
    except subprocess.TimeoutExpired:
        said = b""
    found: dict[str, Any] = json.loads(said) if said.strip() else {"error": f"llama.cpp gave up on {path}."}
    if "error" in found:
        raise NoPeerError(str(found["error"]), str(found.get("hint", "See the engine's log.")))
    prompt = found["prompt"]
    messages = tuple(Message(**message) for message in prompt["messages"])
    return Prompt(messages, prompt["rendered"], prompt["num_tok"])


def _limit_name(limit_bytes: int | None) -> str:
    return "no limit" if limit_bytes is None else format_bytes(limit_bytes)


def _times_of(measured: Sequence[Measured]) -> str:
    """The seconds of each side's runs."""
    names = list(dict.fromkeys(one.side for one in measured))
    runs = {name: [f"{one.run.wall_s:.0f}" for one in measured if one.side == name] for name in names}
    return ", ".join(f"{name} {' + '.join(times)}" for name, times in runs.items())


def _outcome(
    path: Path,
    size_bytes: int,
    prompt: Prompt,
    threads: int,
    command: BenchPeers,
    measured: list[Measured],
    notes: Sequence[str],
) -> TaskOutcome:
    rows = rows_of(measured)
    is_ok = all(row.runs and not row.problem for row in rows if row.side == OURS)
    cached = max((one.run.cached_before for one in measured), default=0.0)
    lines = [
        f"{path.name}, {format_bytes(size_bytes)}; prompt of {prompt.num_tok} tokens, {command.new_tok} new ones, "
        f"{threads} threads; {command.num_rounds} rounds, in turn; at most {cached:.1%} of the file in memory at the "
        "start of a run",
        *lines_of_table(rows),
        f"{sum(one.run.wall_s for one in measured):.0f} s in all: {_times_of(measured)}",
        f"not run: {NO_STREAMING}",
        *notes,
    ]
    report: dict[str, object] = {
        "file": path.name,
        "file_bytes": size_bytes,
        "prompt_tok": prompt.num_tok,
        "new_tok": command.new_tok,
        "threads": threads,
        "rounds": command.num_rounds,
        "rows": [row.as_dict() for row in rows],
        "ratios": ratios(rows),
        "skipped": [NO_STREAMING, *notes],
    }
    return TaskOutcome(is_ok, report, tuple(lines))
