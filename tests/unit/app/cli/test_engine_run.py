"""ctrl+c while a line is read."""

import signal

import pytest

from app.cli.engine_run import InputInterrupted, Interrupt


def test_ctrl_c_is_raised_inside_the_reading_only() -> None:
    def reader() -> str:
        signal.raise_signal(signal.SIGINT)
        return "a line"

    before = signal.getsignal(signal.SIGINT)
    interrupt = Interrupt()
    with interrupt.installed():
        signal.raise_signal(signal.SIGINT)  # between two lines: told when the next one is read
        with pytest.raises(InputInterrupted):
            interrupt.read(lambda: "a line")
        assert interrupt.read(lambda: "a line") == "a line"
        with pytest.raises(KeyboardInterrupt):
            interrupt.read(reader)
    assert signal.getsignal(signal.SIGINT) is before

    interrupt = Interrupt()
    with interrupt.installed(), pytest.raises(InputInterrupted):
        interrupt.read(reader)
