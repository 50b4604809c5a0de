"""The signals that end a command: SIGINT (ctrl+c), SIGTERM and SIGHUP (the terminal is gone).

The first one is raised in the main thread as `Stopped`, so that everything that is open is closed; the exit code is
then 128 and the signal's number, as a shell has it. Should the end take too long (the main thread may be inside a
library's long call, which Python does not interrupt), a second thread ends the process.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

END_S = 1.4
"""How long an orderly end may take."""
_HANDLED_S = 0.2
"""Time for the main thread to run a handler."""


class Stopped(KeyboardInterrupt):
    """A signal asks the program to end."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


def exit_code_of(number: int) -> int:
    """The exit code of a program that a signal ends."""
    return 128 + number


class StopSignals:
    """While entered, stop signals end what the main thread does. A signal that the program was started to ignore, as by
    `nohup`, stays ignored."""

    def __init__(self) -> None:
        self.number: int | None = None
        """The signal that ends the program; None: there was none."""
        self._previous: dict[int, object] = {}
        self._wakeup: tuple[int, int] | None = None
        self._is_ending = threading.Event()

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is not threading.main_thread():
            return self
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._stop)
        self._wakeup = os.pipe()
        reading, writing = self._wakeup
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=(reading,), name="stop-signals", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._wakeup is None:
            return
        signal.set_wakeup_fd(-1)
        for number, previous in self._previous.items():
            signal.signal(number, previous)  # type: ignore[arg-type]
        os.close(self._wakeup[1])  # ends the watching thread, which closes the other end
        self._wakeup = None

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        """The handler. Once the program is ending, further signals change nothing."""
        if self.number is None:
            self.number = number
            self._is_ending.set()
            raise Stopped(number)

    def _watch(self, reading: int) -> None:
        """Ends the process some time after a signal that ends the program, unless the block was left by then."""
        poll = select.poll()
        poll.register(reading, 0)  # reports only that the other end was closed
        while told := os.read(reading, 64):
            ending = next((number for number in told if self._ends(number)), None)
            if ending is not None and not poll.poll(END_S * 1000):
                os._exit(exit_code_of(self.number or ending))
        os.close(reading)

    def _ends(self, number: int) -> bool:
        """Whether a signal ends the program. While an answer is written the first SIGINT only stops the answer."""
        if number not in STOP_SIGNALS:
            return False
        return signal.getsignal(number) == self._stop or self._is_ending.wait(_HANDLED_S)


def forget_in_child() -> None:
    """After a fork: signals have their own meaning again, and are not told to the parent's thread."""
    with contextlib.suppress(ValueError):
        signal.set_wakeup_fd(-1)
    for number in STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
