"""The process that the campaign runs in: it has everything imported, and forks for each case.

A case that hangs, grows or crashes takes its fork with it and nothing else. Requests and answers are JSON lines on
standard input and output.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
import tqdm

from tests.hostile import subjects
from tests.hostile.mutations import MARKER, Case, damage

WALL_LIMIT_S = 20.0
"""A case is killed after so long. What it may take is 5 s of processor time: a busy machine makes no difference."""
_LOOK_S = 0.005
_MEMORY_CAP_BYTES = 1500 << 20
"""Of address space, above what is there before: a case that wants more gets a MemoryError instead of the machine."""


def run_case(case: Case, root: Path, asks: bool) -> dict[str, Any]:
    """What became of a case: its outcome, seconds, bytes."""
    scratch = root / "case"
    shutil.rmtree(scratch, ignore_errors=True)
    folder = scratch / case.base
    shutil.copytree(root / case.base, folder)
    return {"number": case.number, **_forked(case, folder, asks), "was_run": (scratch / MARKER).exists()}


def _forked(case: Case, folder: Path, asks: bool) -> dict[str, Any]:
    path = damage(case, folder)
    before_bytes = _anonymous_bytes(os.getpid())
    reader, writer = os.pipe()
    began_s = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _in_child(path, asks, writer)
    os.close(writer)
    content, peak_bytes = _read_until_end(reader, began_s + WALL_LIMIT_S, child)
    os.close(reader)
    if content is None:
        os.kill(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    found = {"file": path.name, "wall_s": time.monotonic() - began_s, "cpu_s": used.ru_utime + used.ru_stime}
    found["growth_bytes"] = max(peak_bytes - before_bytes, 0)
    if content is None:
        return found | subjects.Outcome("hang")._asdict()
    if not content:
        return found | subjects.Outcome("crash", message=f"ended with status {status}")._asdict()
    return found | json.loads(content)


def _in_child(path: Path, asks: bool, writer: int) -> None:
    """Never returns."""
    with open(os.devnull, "r+b") as nowhere:
        for fd in (0, 1, 2):
            os.dup2(nowhere.fileno(), fd)
    cap = _address_space_bytes() + _MEMORY_CAP_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (cap, cap))
    try:
        outcome = subjects.try_out(path, asks)
        os.write(writer, json.dumps(outcome._asdict()).encode("utf-8", "replace")[:60_000])
    finally:
        os._exit(0)


def _read_until_end(fd: int, deadline_s: float, child: int) -> tuple[bytes | None, int]:
    """(all that is written, the most memory that the child was seen to hold); None: the deadline came first."""
    content, peak_bytes = b"", 0
    while True:
        peak_bytes = max(peak_bytes, _anonymous_bytes(child))
        if time.monotonic() > deadline_s:
            return None, peak_bytes
        if not select.select([fd], [], [], _LOOK_S)[0]:
            continue
        piece = os.read(fd, 65536)
        if not piece:
            return content, peak_bytes
        content += piece


def _anonymous_bytes(process: int) -> int:
    """What a process holds apart from mapped files: a fork comes to hold those again without growing."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def _address_space_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def main() -> None:
    root = Path(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    torch.set_num_threads(1)
    tqdm.tqdm.monitor_interval = 0
    subjects.make_bases(root)
    for base in ("single", "sharded"):
        # The first load and answer import what later ones need; a fork then starts with it.
        with contextlib.suppress(Exception):
            subjects.try_out(root / base / "config.json", asks=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(run_case(Case(**request["case"]), root, request["asks"])), file=answers)


if __name__ == "__main__":
    main()
