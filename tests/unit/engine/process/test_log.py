"""The log is never essential: no write to it raises, no name of it blocks, and errors find another way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.engine_log import UnwritableLogError, open_log

PRINTS = """
import logging, sys, traceback, warnings
from engine.child_process import log_problem, make_log_unfailing
from engine.process.failures import failure_of

make_log_unfailing()
assert not log_problem() or log_problem() == "it could not be opened"
print("x" * 100_000)
sys.stdout.flush()
warnings.warn("a warning")
logging.getLogger("library").warning("a warning")
sys.stderr.buffer.write(b"bytes")
try:
    [].sort(key=1 / 0)
except ZeroDivisionError as error:
    traceback.print_exc()
    failed = failure_of(1, error, is_fatal=False)
sys.__stderr__ = sys.stderr
sys.exit(0 if sys.argv[1] in failed.hint and "ZeroDivisionError: division by zero" == failed.message else failed.hint)
"""


@pytest.mark.parametrize(
    ("log", "hint"),
    [
        ("/dev/full", "cannot be written (No space left on device). It happened in"),
        (os.devnull, "cannot be written (it could not be opened). It happened in"),
        ("log", "The details are in the engine's log."),
    ],
)
def test_whatever_is_printed_ends_nothing(tmp_path: Path, log: str, hint: str) -> None:
    with open(tmp_path / log, "ab") as file:
        ended = subprocess.run([sys.executable, "-c", PRINTS, hint], stdout=file, stderr=file, cwd=Path.cwd())
    assert ended.returncode == 0
    if log == "log":
        text = (tmp_path / log).read_text()
        assert text.startswith("x" * 100_000 + "\n")
        assert "ZeroDivisionError" in text


def test_a_log_is_appended_to_and_its_folders_are_made(tmp_path: Path) -> None:
    path = tmp_path / "home" / "log" / "engine.log"
    for text in (b"one ", b"two"):
        descriptor = open_log(path)
        os.write(descriptor, text)
        os.close(descriptor)
    assert path.read_bytes() == b"one two"


@pytest.mark.parametrize("kind", ["folder", "pipe", "read pipe", "under a file", "long name", "null character"])
def test_a_name_that_cannot_be_a_log(tmp_path: Path, kind: str) -> None:
    """It is refused at once: opening a pipe would wait for a reader, and writing to it for room."""
    path, reader = tmp_path / "log", None
    if kind == "folder":
        path.mkdir()
    elif kind == "under a file":
        path.touch()
        path /= "engine.log"
    elif kind == "long name":
        path = tmp_path / ("n" * 300)
    elif kind == "null character":
        path = Path(f"{tmp_path}/a\0b/log")
    else:
        os.mkfifo(path)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK) if kind == "read pipe" else None
    try:
        with pytest.raises(UnwritableLogError) as refused:
            open_log(path)
        assert str(refused.value)
    finally:
        if reader is not None:
            os.close(reader)
