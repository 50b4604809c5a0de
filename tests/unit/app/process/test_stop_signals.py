"""Stop signals: what they end, how soon, and with which exit code."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

BEGINNING = """
import hashlib, signal, sys, threading
from app.process.stop_signals import StopSignals, exit_code_of

def ready():
    print("ready", flush=True)
"""
WAITING = """
with StopSignals() as stop:
    try:
        ready()
        signal.pause()
    except KeyboardInterrupt:
        print("tidied up", flush=True)
sys.exit(exit_code_of(stop.number))
"""
IN_A_LONG_CALL = """
with StopSignals():
    threading.Timer(0.3, ready).start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2 * 10**9)
"""
CLEANING_UP_FOR_EVER = """
with StopSignals():
    try:
        ready()
        signal.pause()
    finally:
        while True:
            signal.pause()
"""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def ended_by(script: str, *numbers: signal.Signals) -> tuple[int, str]:
    """The exit code of a script that gets signals once it is ready, and what it printed after that."""
    program = subprocess.Popen([sys.executable, "-c", BEGINNING + script], stdout=subprocess.PIPE, cwd=Path.cwd())
    assert program.stdout is not None
    with program.stdout:
        assert program.stdout.readline() == b"ready\n"
        for number in numbers:
            program.send_signal(number)
        printed = program.stdout.read().decode()
        return program.wait(), printed


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_is_raised_so_that_everything_is_closed(number: signal.Signals) -> None:
    assert ended_by(WAITING, number) == (128 + number, "tidied up\n")


@pytest.mark.parametrize("script", [IN_A_LONG_CALL, CLEANING_UP_FOR_EVER], ids=["in a long call", "cleaning up"])
def test_a_program_that_does_not_end_is_ended(script: str) -> None:
    assert ended_by(script, signal.SIGTERM)[0] == 143


def test_an_ignored_signal_stays_ignored() -> None:
    """As `nohup` has it."""
    script = "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n" + WAITING
    assert ended_by(script, signal.SIGHUP, signal.SIGTERM) == (143, "tidied up\n")


def test_handlers_are_put_back() -> None:
    script = """
before = [signal.getsignal(number) for number in (1, 2, 15)]
with StopSignals():
    pass
ready()
print([signal.getsignal(number) for number in (1, 2, 15)] == before, signal.set_wakeup_fd(-1))
"""
    assert ended_by(script) == (0, "True -1\n")
