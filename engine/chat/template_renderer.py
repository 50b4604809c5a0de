"""Renders chat templates in a process of their own, within limits of time, memory and output that do stop them.

A chat template is a program of whoever made the model. jinja2's sandbox keeps it from the machine, and does not keep it
from `10 ** (10 ** 8)`: that is one call into C, which neither an exception nor a signal handler can interrupt within
this process. A process can be killed, and its memory is limited by the system.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from time import monotonic

from engine.chat.template_process import LENGTH_BYTES, READY, REFUSED, TEXT, TOO_LONG, TOO_MUCH_MEMORY
from engine.config import format_bytes
from offload.errors import WaitCancelled

_POLL_S = 0.05
"""Between two questions whether the user has cancelled."""
_START_S = 60.0
"""Python starts in a tenth of this even on a busy machine."""
_MOST_JSON_BYTES, _MOST_ERROR_BYTES = 6, 1 << 16
"""Of one byte of text in JSON, and of an answer without a text."""
_NUM_TRIES = 2
"""The process may have ended on its own, with the thread that started it."""


class TemplateRefused(Exception):
    """The template is no template, or it raised an error: its message."""


class TemplateLimitExceeded(Exception):
    """The template was stopped: which limit it exceeded, as a sentence's end."""


class _ProcessEnded(Exception):
    """Of itself, before it answered."""


@dataclass(frozen=True, slots=True)
class RenderLimits:
    """For one rendering."""

    seconds: float = 4.0
    """With what loading takes beside, a refusal comes within five."""
    memory_bytes: int = 256 << 20
    """Beyond what the idle process needs."""
    output_bytes: int = 4 << 20
    """Of the rendered text, and of the template itself."""


class TemplateRenderer:
    """Starts the process with the first rendering, and anew after it was killed. May be used from several threads."""

    def __init__(self, limits: RenderLimits = RenderLimits()) -> None:
        self._limits = limits
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The process's id, while there is one."""
        return self._process.pid if self._process is not None else None

    def render(
        self, template: str, variables: Mapping[str, object], is_cancelled: Callable[[], bool] = lambda: False
    ) -> str:
        """The text. `variables` are JSON values.

        Raises TemplateRefused, TemplateLimitExceeded, and WaitCancelled at most a tenth of a second after
        `is_cancelled` says so.
        """
        if len(template) > self._limits.output_bytes:
            raise TemplateLimitExceeded(f"has more than {format_bytes(self._limits.output_bytes)}")
        request = json.dumps({"template": template, "variables": variables}).encode()
        with self._lock:
            for _ in range(_NUM_TRIES):
                try:
                    return self._text_of(self._ask(request, is_cancelled))
                except TemplateRefused:
                    raise
                except _ProcessEnded:
                    self._end()
                except BaseException:  # its answer, if one comes, would be taken for the next one's
                    self._end()
                    raise
        raise TemplateLimitExceeded("ended the process that renders it")

    def close(self) -> None:
        """Ends the process. It is started again when it is needed."""
        with self._lock:
            self._end()

    def _text_of(self, answer: Mapping[str, object]) -> str:
        if TEXT in answer:
            return str(answer[TEXT])
        if REFUSED in answer:
            raise TemplateRefused(str(answer[REFUSED]))
        if TOO_MUCH_MEMORY in answer:
            raise TemplateLimitExceeded(f"needs more than {format_bytes(self._limits.memory_bytes)} of memory")
        assert TOO_LONG in answer, answer
        raise TemplateLimitExceeded(f"writes more than {format_bytes(self._limits.output_bytes)}")

    def _ask(self, request: bytes, is_cancelled: Callable[[], bool]) -> Mapping[str, object]:
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._process = self._start(is_cancelled)
        exchange = _Exchange(self._process, monotonic() + self._limits.seconds, is_cancelled)
        most_bytes = _MOST_JSON_BYTES * self._limits.output_bytes + _MOST_ERROR_BYTES
        try:
            exchange.send(request)
            return exchange.receive(most_bytes)
        except TimeoutError as error:
            raise TemplateLimitExceeded(f"takes more than {self._limits.seconds:g} s") from error

    def _start(self, is_cancelled: Callable[[], bool]) -> subprocess.Popen[bytes]:
        limits = self._limits
        numbers = (os.getpid(), limits.memory_bytes, limits.output_bytes, max(int(limits.seconds), 1))
        command = [sys.executable, "-P", "-m", "engine.chat.template_process", *map(str, numbers)]
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, bufsize=0)
        except OSError as error:
            raise TemplateLimitExceeded(f"cannot be rendered: no process could be started for it ({error})") from error
        try:
            assert process.stdin is not None
            os.set_blocking(process.stdin.fileno(), False)
            started = _Exchange(process, monotonic() + _START_S, is_cancelled).receive(_MOST_ERROR_BYTES)
            assert READY in started, started
        except BaseException as error:
            _kill(process)
            if isinstance(error, (TimeoutError, _ProcessEnded)):
                raise TemplateLimitExceeded("cannot be rendered: the process for it did not start") from error
            raise
        return process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Ends it and waits for that."""
    with process:  # closes the pipes
        process.kill()


class _Exchange:
    """One request and its answer, until a point in time. Raises TimeoutError, WaitCancelled, _ProcessEnded."""

    def __init__(self, process: subprocess.Popen[bytes], deadline_s: float, is_cancelled: Callable[[], bool]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._to, self._from = process.stdin.fileno(), process.stdout.fileno()
        self._deadline_s, self._is_cancelled = deadline_s, is_cancelled

    def send(self, body: bytes) -> None:
        rest = memoryview(len(body).to_bytes(LENGTH_BYTES, "big") + body)
        while rest:
            self._wait(writes=True)
            try:
                rest = rest[os.write(self._to, rest) :]
            except BrokenPipeError as error:
                raise _ProcessEnded from error

    def receive(self, most_bytes: int) -> Mapping[str, object]:
        num_bytes = int.from_bytes(self._read(LENGTH_BYTES), "big")
        if num_bytes > most_bytes:
            raise _ProcessEnded
        answer = json.loads(self._read(num_bytes))
        assert isinstance(answer, dict)
        return answer

    def _read(self, num_bytes: int) -> bytes:
        found = bytearray()
        while len(found) < num_bytes:
            self._wait(writes=False)
            piece = os.read(self._from, num_bytes - len(found))
            if not piece:
                raise _ProcessEnded
            found += piece
        return bytes(found)

    def _wait(self, writes: bool) -> None:
        """Until the process can be written to, or read from."""
        ready = select.poll()  # unlike select.select it takes descriptors of any number
        ready.register(self._to if writes else self._from, select.POLLOUT if writes else select.POLLIN)
        while True:
            if self._is_cancelled():
                raise WaitCancelled("Stopped.")
            left_s = self._deadline_s - monotonic()
            if left_s <= 0:
                raise TimeoutError
            if ready.poll(max(min(_POLL_S, left_s) * 1000, 1)):
                return


@cache
def shared_renderer() -> TemplateRenderer:
    """The one of this process, ended with it."""
    renderer = TemplateRenderer()
    atexit.register(renderer.close)
    return renderer
