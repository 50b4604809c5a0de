"""One run of one side, from a cold file to its end, whatever it is."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any, Final

from engine.child_process import lines_of
from engine.commands.bench.peers.memory_group import MemoryGroup
from engine.commands.bench.peers.page_cache import files_of_model, make_cold
from engine.commands.bench.peers.request import SideRequest
from offload.errors import WaitCancelled

KILLED: Final = "killed for memory"
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class PeerRun:
    """What came of a run. None: it did not come so far."""

    outcome: str
    """`done`, or how it ended instead, for a person."""
    cached_before: float
    """Share of the file in the page cache when it began."""
    load_ms: float | None
    ttft_ms: float | None
    tpot_ms: float | None
    """Median over the tokens after the first."""
    num_tok: int
    prompt_tok: int | None
    peak_bytes: int | None
    """Of the group, page cache included; without groups of the processes."""
    text: str
    details: dict[str, Any]
    """What else the side told."""
    wall_s: float = 0.0
    """From its start to its end."""

    @property
    def is_done(self) -> bool:
        return self.outcome == "done"


NOT_FITTING: Final = PeerRun(
    "not tried: a copy of all weights does not fit", 0.0, None, None, None, 0, None, None, "", {}
)


def run_side(
    module: str,
    request: SideRequest,
    group: MemoryGroup | None,
    limit_s: float,
    is_cancelled: Callable[[], bool],
) -> PeerRun:
    """Runs `module` in `group` at most `limit_s` seconds. Raises WaitCancelled, OSError."""
    cached_share = make_cold(files_of_model(Path(request.config.model)))
    if group is not None:
        request = replace(request, procs_file=str(group.procs_file))
    command = [sys.executable, "-P", "-m", module, str(os.getpid()), request.to_json()]
    told: dict[str, Any] = {"stage": "loading"}
    steps_ms: list[float] = []
    began_s = monotonic()
    deadline_s, is_late, has_ended = began_s + limit_s, False, False
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True) as side:
        assert side.stdout is not None
        try:
            for line in lines_of(side.stdout.fileno(), _POLL_S):
                if is_cancelled():
                    raise WaitCancelled("Stopped.")
                if line is not None:
                    _take(json.loads(line), told, steps_ms)
                elif is_late := monotonic() > deadline_s:
                    break
            else:
                has_ended = True
        finally:
            if not has_ended:
                _kill(side)
        code = side.wait()
    outcome = _outcome(told, code, f"stopped after {limit_s:.0f} s" if is_late else "", group)
    return replace(_result(outcome, cached_share, told, steps_ms, group), wall_s=monotonic() - began_s)


def _take(message: dict[str, Any], told: dict[str, Any], steps_ms: list[float]) -> None:
    if "step_ms" in message:
        steps_ms.append(message["step_ms"])
    else:
        told.update(message)


def _kill(side: subprocess.Popen[bytes]) -> None:
    """With all that it has started in its session; what leads a session of its own ends with its parent."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(side.pid, signal.SIGKILL)


def _outcome(told: dict[str, Any], code: int, late: str, group: MemoryGroup | None) -> str:
    if told["stage"] == "done":
        return "done"
    stage = told["stage"]
    if late:
        return f"{late}, while {stage}"
    if group is not None and group.use().num_killed:
        return f"{KILLED} while {stage}"
    if "error" in told:
        return str(told["error"])
    return f"ended by {signal.Signals(-code).name if code < 0 else f'exit code {code}'} while {stage}"


def _result(
    outcome: str, cached_share: float, told: dict[str, Any], steps_ms: list[float], group: MemoryGroup | None
) -> PeerRun:
    held = told.pop("peak_rss_bytes", None)
    ttft_ms = told.pop("ttft_ms", None)
    return PeerRun(
        outcome=outcome,
        cached_before=cached_share,
        load_ms=told.pop("load_ms", None),
        ttft_ms=ttft_ms,
        tpot_ms=statistics.median(steps_ms) if steps_ms else None,
        num_tok=len(steps_ms) + (ttft_ms is not None),
        prompt_tok=told.pop("prompt_tok", None),
        peak_bytes=group.use().peak_bytes if group is not None else held,
        text=told.pop("text", ""),
        details=told | {"steps_ms": [round(step_ms, 2) for step_ms in steps_ms]},
    )
