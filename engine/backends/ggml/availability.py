"""Whether ggml can be used on this machine: tried once in another process, which an error of it would end."""

from __future__ import annotations

import functools
import json
import os
import platform
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from engine.backends.ggml.library import WHEEL, WHEEL_VERSION, GgmlUnavailableError, library_path
from engine.demo.location import cache_root
from offload.atomic_file import replaced
from offload.bounded_json import Limits, parse_json
from offload.regular_file import read_whole

_TRIAL = 3
"""Which trial it was: to be raised when the self-test tries more."""
_TIMEOUT_S = 60
_MAX_BYTES = 1 << 16


@functools.cache
def ggml_problem() -> str:
    """Why ggml cannot be used; empty: it can. The first answer for a wheel and a processor is kept in a file."""
    try:
        path = library_path()
    except GgmlUnavailableError as error:
        return str(error)
    known, key = _remembered(), _key(path)
    if key in known:
        return known[key]
    problem = _tried()
    _remember({**known, key: problem})
    return problem


def _key(path: Path) -> str:
    state = path.stat()
    return f"{WHEEL} {WHEEL_VERSION} {_TRIAL} {state.st_size} {state.st_mtime_ns} {platform.machine()} {_processor()}"


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _tried() -> str:
    environment = {**os.environ, "GGML_NO_BACKTRACE": "1"}
    try:
        run = subprocess.run(
            [sys.executable, "-P", "-m", "engine.backends.ggml.self_test"],
            env=environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"its self-test could not be run ({type(error).__name__})"
    if run.returncode == 0:
        return ""
    said = (run.stdout.strip() or run.stderr.strip()).splitlines()
    return f"its self-test ended with {run.returncode}" + (f": {said[-1][:200]}" if said else "")


def _file() -> Path:
    return cache_root() / "ggml-self-test.json"


def _remembered() -> dict[str, str]:
    """Nothing where the file is missing or damaged."""
    try:
        found = parse_json(read_whole(_file(), _MAX_BYTES), Limits(max_bytes=_MAX_BYTES))
    except Exception:  # noqa: BLE001 - a memory that cannot be read is none
        return {}
    if not isinstance(found, dict):
        return {}
    return {key: value for key, value in found.items() if isinstance(value, str)}


def _remember(problems: dict[str, str]) -> None:
    with suppress(OSError), replaced(_file()) as file:
        file.write(json.dumps(problems).encode())
