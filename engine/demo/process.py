"""Builds the demo in a process of its own, so that its memory does not count against the engine's byte budget.

The child is `python -m engine.demo.model --events PARENT_PID`; it prints one JSON object a line, and the last one is
the outcome. It ends with its parent.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from engine.child_process import lines_of
from engine.demo.location import built_demo
from engine.demo.wheel import IsCancelled, Progress, stop_if
from engine.errors import DemoBuildError
from engine.events import LoadProgress

_POLL_S = 0.1


def ensure_demo_apart(progress: Progress, is_cancelled: IsCancelled) -> Path:
    """The demo's checkpoint folder, built first when it is missing. Raises DemoBuildError, WaitCancelled."""
    folder = built_demo()
    if folder is not None:
        return folder
    command = [sys.executable, "-P", "-m", "engine.demo.model", "--events", str(os.getpid())]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as child:
        try:
            outcome = _follow(child, progress, is_cancelled)
        finally:
            child.kill()
    if "folder" in outcome:
        return Path(str(outcome["folder"]))
    raise DemoBuildError(
        str(outcome.get("message", "The process that built it ended without an answer.")),
        str(outcome.get("hint", "See the engine's log, and try again.")),
    )


def _follow(child: subprocess.Popen[bytes], progress: Progress, is_cancelled: IsCancelled) -> dict[str, object]:
    """Passes on the child's progress; returns its last line that is not progress, or {} if there was none. Raises
    WaitCancelled."""
    assert child.stdout is not None
    outcome: dict[str, object] = {}
    for line in lines_of(child.stdout.fileno(), _POLL_S):
        stop_if(is_cancelled)
        if line is None:
            continue
        message = json.loads(line)
        if "stage" in message:
            progress(LoadProgress(**message))
        else:
            outcome = message
    return outcome
