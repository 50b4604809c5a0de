"""`moe-chat ask`: one question, no screen. The answer goes to standard output, everything else to standard error.

With --json, one object a line. Each has `event`; the other keys are, by event:
    loading   stage, done, total, unit
    ready     model, moe_layers, experts, top_k, context_tok, effective, notices, load_s
    domain    domain, num_warmed, expected_hit_rate (num_warmed is null without a profile)
    prefill   done_tok, total_tok, reused_tok, note
    text      text, num_tok (tokens of the answer so far)
    mode      mode, at_tok
    end       reason, label, text, stats (every counter of the answer)
    error     title, message, hint
"""

from __future__ import annotations

import argparse
import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType

from app import answer_record, options, profile_words
from app.domains import domain_named
from app.engine_bridge import EngineLink
from app.engine_launch import make_link
from app.headless_screen import HeadlessScreen
from app.instance import InstanceLock
from app.paths import AppPaths
from engine.api import Cancel, Load, Message, Submit
from engine.config import EngineConfig
from engine.errors import ConfigError, MoeChatError
from engine.events import CANCELLED, ERROR, EngineReady, Event, Failed, Profiles, TurnEnded

EXIT_OK, EXIT_FAILED, EXIT_INTERRUPTED = 0, 1, 130

_POLL_S = 0.1
_STOP_WAIT_S = 3.0
"""How long a stopped answer may take to end before the engine is closed anyway."""


class Interrupt:
    """Whether the user pressed ctrl+c: once stops the answer, twice stops the program."""

    def __init__(self) -> None:
        self.since: float | None = None

    def handle(self, _signal: int, _frame: FrameType | None) -> None:
        """The handler of SIGINT."""
        if self.since is not None:
            raise KeyboardInterrupt
        self.since = time.monotonic()

    @property
    def is_overdue(self) -> bool:
        """The user has waited long enough for the answer to stop."""
        return self.since is not None and time.monotonic() - self.since > _STOP_WAIT_S

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle SIGINT meanwhile."""
        previous = signal.signal(signal.SIGINT, self.handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, previous)


class EngineFailure(MoeChatError):
    """The engine said Failed: the same words, as an exception."""

    def __init__(self, failure: Failed) -> None:
        super().__init__(failure.message, failure.hint)
        self.title = failure.title


@contextmanager
def started_engine(paths: AppPaths, screen: HeadlessScreen) -> Iterator[EngineLink]:
    """An engine's process, with no model yet, closed at the end whatever happens."""
    link = make_link(paths)
    link.start()
    try:
        yield link
    finally:
        screen.clear_progress()
        link.close()


@contextmanager
def running_engine(
    config: EngineConfig, screen: HeadlessScreen, interrupt: Interrupt
) -> Iterator[tuple[EngineLink, EngineReady]]:
    """An engine with its model loaded, closed at the end whatever happens. Raises EngineFailure, KeyboardInterrupt."""
    paths = AppPaths.from_environment()
    lock = InstanceLock(paths.instance_lock)
    if note := lock.acquire():
        screen.note(note)
    try:
        with started_engine(paths, screen) as link:
            link.send(Load(config))
            for event in events_of(link, interrupt):
                screen.event(event)
                if isinstance(event, EngineReady):
                    yield link, event
                    return
                if isinstance(event, Failed):
                    raise EngineFailure(event)
            raise KeyboardInterrupt
    finally:
        lock.release()


def events_of(
    link: EngineLink, interrupt: Interrupt, on_interrupt: Callable[[], None] | None = None
) -> Iterator[Event]:
    """Events as they come. After ctrl+c: `on_interrupt` once and a while longer; without one, the end."""
    told = False
    while True:
        event = link.wait_event(_POLL_S)
        if event is not None:
            yield event
        if interrupt.since is not None:
            if on_interrupt is None or interrupt.is_overdue:
                return
            if not told:
                told = True
                on_interrupt()


def question_text(words: list[str]) -> str:
    """The question, with what is piped in as its context. Raises ConfigError when there is neither."""
    question, context = " ".join(words).strip(), _piped_text().strip()
    if not question and not context:
        raise ConfigError("There is no question.", 'Write it like moe-chat ask "What is the capital of France?"')
    return "\n\n".join(part for part in (context, question) if part)


def _piped_text() -> str:
    """Standard input when it is a pipe or a file."""
    if sys.stdin is None or sys.stdin.closed:
        return ""
    try:
        kind = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return ""
    if not (stat.S_ISFIFO(kind) or stat.S_ISREG(kind)):
        return ""
    return sys.stdin.buffer.read().decode("utf-8", "replace")


def ask(arguments: argparse.Namespace) -> int:
    """Run `moe-chat ask`; returns the exit code."""
    config = replace(options.engine_config(arguments), domain=arguments.domain)
    sampling = options.sampling_config(arguments)
    system = arguments.system if arguments.system is not None else domain_named(arguments.domain).system_prompt.strip()
    messages = (*([Message("system", system)] if system else []), Message("user", question_text(arguments.question)))
    interrupt = Interrupt()
    screen = HeadlessScreen(is_json=arguments.json)
    with interrupt.installed(), running_engine(config, screen, interrupt) as (link, ready):
        ended = _answer(link, Submit(1, messages, sampling), screen, interrupt, arguments.domain)
    if ended is None:
        return EXIT_INTERRUPTED
    if arguments.stats:
        screen.stats(answer_record.stats_lines(ended.stats, ended.reason, ready.top_k))
    if ended.reason == CANCELLED or interrupt.since is not None:
        return EXIT_INTERRUPTED
    return EXIT_FAILED if ended.reason == ERROR else EXIT_OK


def _answer(
    link: EngineLink, question: Submit, screen: HeadlessScreen, interrupt: Interrupt, domain: str
) -> TurnEnded | None:
    """Ask and print; None when the user stopped it and the engine did not end it in time."""
    link.send(question)
    for event in events_of(link, interrupt, on_interrupt=lambda: link.send(Cancel(question.request_id))):
        screen.event(event)
        if isinstance(event, Profiles):
            for state in event.profiles:
                if state.domain == domain and state.problem:
                    screen.note(profile_words.unusable(state))
        if isinstance(event, TurnEnded):
            return event
        if isinstance(event, Failed):
            screen.end_text()
            raise EngineFailure(event)
    screen.end_text()
    return None
