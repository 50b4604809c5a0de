"""A command of the program, ended by a signal in a known phase: how long that takes, and what is left of it."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import psutil

from tests.patience import GONE_S

PATIENCE_S = 300.0
"""A phase that is not reached in this time is a failure."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A command, and how to tell that it has come to the phase."""

    name: str
    arguments: tuple[str, ...]
    marker: str = ""
    """What it prints when it is there; empty: it is there when it has started."""
    delay_s: float = 0.0
    """Time to let pass after that."""
    typed: str = ""
    """What is typed once `prompt` is printed; empty: there is no terminal to type on."""
    prompt: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of a signal."""

    phase: str
    signal_name: str
    seconds: float
    """From the signal to the end of the process."""
    exit_code: int
    """As a shell has it: 128 and the number, where a signal ended the process by itself."""
    leftovers: tuple[str, ...]
    """Processes that live two seconds after the signal."""
    printed: str
    """What it printed on standard output after the signal."""

    def line(self) -> str:
        """One row of a table."""
        left = ", ".join(self.leftovers) or "-"
        return f"{self.phase:<44}{self.signal_name:<9}{self.seconds:>6.2f} s{self.exit_code:>6}  {left}"


class Program:
    """The program with standard error, and where it is typed on also standard input, on a pseudo-terminal."""

    def __init__(self, phase: Phase, home: Path) -> None:
        """`home` is this program's alone: what it starts is known by it."""
        self._home = str(home)
        self._output = self._errors = b""
        self._terminal, theirs = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "app.cli", *phase.arguments],
            stdin=theirs if phase.prompt else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=theirs,
            env={**os.environ, "MOE_CHAT_HOME": self._home, "TERM": "xterm", "PYTHONPATH": str(Path.cwd())},
            start_new_session=True,
        )
        os.close(theirs)

    def come_to(self, phase: Phase) -> None:
        """Waits until the phase is reached."""
        if phase.prompt:
            self._wait_for(phase.prompt)
            os.write(self._terminal, phase.typed.encode())
            self._output = self._errors = b""
        if phase.marker:
            self._wait_for(phase.marker)
        deadline = monotonic() + phase.delay_s
        while (left := deadline - monotonic()) > 0:
            self._read(left)
        assert self._process.poll() is None, f"{phase.name} was over already: {self._text}"

    def interrupt_until(self, text: str) -> None:
        """Sends SIGINT once, and waits for what it has printed."""
        self._process.send_signal(signal.SIGINT)
        self._wait_for(text)

    def end_by(self, phase: Phase, number: signal.Signals) -> Ended:
        """Sends the signal, and watches what becomes of the program and what it has started."""
        self._output = b""
        began_s = monotonic()
        self._process.send_signal(number)
        while self._process.poll() is None:
            assert monotonic() - began_s < PATIENCE_S, f"{phase.name} never ended"
            self._read(0.005)
        seconds = monotonic() - began_s
        while self._children() and monotonic() - began_s < GONE_S:
            threading.Event().wait(0.01)
        leftovers = tuple(" ".join(process.cmdline()[-3:]) for process in self._children())
        self._read(0)
        code = self._process.returncode
        return Ended(
            phase.name,
            number.name,
            seconds,
            128 - code if code < 0 else code,
            leftovers,
            self._output.decode(errors="replace"),
        )

    def close(self) -> None:
        """Ends everything, whatever it does."""
        for process in self._children():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        os.close(self._terminal)

    @property
    def _text(self) -> str:
        return (self._output + self._errors).decode(errors="replace")

    def _wait_for(self, text: str) -> None:
        deadline = monotonic() + PATIENCE_S
        while text not in self._text:
            assert monotonic() < deadline, f"{text!r} was not printed: {self._text[-2000:]}"
            has_read = self._read(0.05)
            assert has_read or self._process.poll() is None, f"it ended before {text!r}: {self._text[-2000:]}"

    def _read(self, wait_s: float) -> bool:
        """Takes in what is printed within a time."""
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        has_read = False
        for source in select.select([pipe, self._terminal], [], [], wait_s)[0]:
            try:
                piece = os.read(source, 1 << 16)
            except OSError:  # the terminal's other end is closed
                piece = b""
            has_read |= bool(piece)
            if source == pipe:
                self._output += piece
            else:
                self._errors += piece
        if not has_read:
            threading.Event().wait(min(wait_s, 0.005))
        return has_read

    def _children(self) -> list[psutil.Process]:
        """Everything that it has started, and theirs, wherever it stands in the tree of processes."""
        return [process for process in _living() if self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            is_another = process.pid not in (self._process.pid, os.getpid())
            return is_another and process.environ().get("MOE_CHAT_HOME") == self._home
        except (psutil.Error, OSError):
            return False


def _living() -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                yield process
