"""`moe-chat verify`, `bench`, `plan`, `profile`, `trace`, `tune`: what runs long and prints a report."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.cli.commands.requests import Request, request_of
from app.cli.engine_run import EngineFailure, counted_as_running, events_of, running_engine, started_engine
from app.cli.output.screen import HeadlessScreen
from app.cli.output.terminal_text import print_report
from app.cli.usage import EXIT_FAILED, EXIT_OK
from app.engine_link.bridge import EngineLink
from app.settings.settings import Settings
from app.storage.paths import AppPaths
from engine.api import Bench, BenchPeers, Plan, ResetEviction, TuneEviction, Verify
from engine.config import EngineConfig, parse_residency
from engine.events import UNLOADED, Failed, TaskEnded, TaskProgress

_MEASURES = Verify | Bench | BenchPeers | TuneEviction
"""What is measured depends on the settings: they are told with it."""


def run(arguments: argparse.Namespace) -> int:
    """Run the task, print what it found; 0 only when the task says it is well. Raises ConfigError, EngineFailure."""
    if arguments.command == "trace" and arguments.trace == "replay":
        return _replay(arguments)
    settings = Settings.of(arguments)
    config = settings.engine_config()
    task = request_of(arguments, config)
    screen = HeadlessScreen()
    for problem in settings.problems:
        screen.note(problem)
    with _engine_for(task, config, screen) as link:
        ended = _run(link, task, screen)
    changes = settings.engine_changes() if isinstance(task, _MEASURES) else {}
    print_report(ended.lines, {"is_ok": ended.is_ok, **ended.report}, changes, is_json=arguments.json)
    return EXIT_OK if ended.is_ok else EXIT_FAILED


@contextmanager
def _engine_for(task: Request, config: EngineConfig, screen: HeadlessScreen) -> Iterator[EngineLink]:
    """With the model loaded, except for what is done without it."""
    if isinstance(task, BenchPeers):
        with counted_as_running(screen), started_engine(AppPaths.from_environment(), screen) as link:
            yield link
    elif isinstance(task, Plan | ResetEviction):
        with started_engine(AppPaths.from_environment(), screen) as link:
            yield link
    else:
        with counted_as_running(screen), running_engine(config, screen) as (link, _ready):
            yield link


def _run(link: EngineLink, task: Request, screen: HeadlessScreen) -> TaskEnded:
    """How the task ended. Raises EngineFailure."""
    link.send(task)
    for event in events_of(link, task.request_id):
        screen.event(event)
        if isinstance(event, TaskEnded):
            return event
        if isinstance(event, Failed) and event.kind != UNLOADED:
            raise EngineFailure(event)
    raise AssertionError("events have no end")


def _replay(arguments: argparse.Namespace) -> int:
    """Replay a trace in this process: it takes seconds, and ctrl+c ends it."""
    from engine.commands.replay_trace import ReplayRequest, replay_trace

    residency = getattr(arguments, "residency", None)
    request = ReplayRequest(
        path=Path(arguments.file).expanduser(),
        num_slots=arguments.slots,
        residency=None if residency is None else parse_residency(residency),
        policies=tuple(arguments.policies.split(",")) if arguments.policies else (),
        prefetch_depth=arguments.prefetch_depth,
        hidden_copies=arguments.hidden,
    )
    screen = HeadlessScreen()
    try:
        outcome = replay_trace(request, lambda stage, done, total: screen.event(TaskProgress(1, stage, done, total)))
    finally:
        screen.clear_progress()
    print_report(outcome.lines, {"is_ok": True, **outcome.report}, {}, is_json=arguments.json)
    return EXIT_OK
