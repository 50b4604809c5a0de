"""`moe-chat verify`, `bench`, `plan`, `profile`, `trace record`, `tune`: long-running requests to the engine, without a
screen."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from app.cli.commands.profile_requests import profile_command
from app.cli.commands.trace_requests import record_command, tune_command
from app.cli.engine_run import (
    EXIT_FAILED,
    EXIT_OK,
    EngineFailure,
    counted_as_running,
    events_of,
    running_engine,
    started_engine,
)
from app.cli.output.report import print_report
from app.cli.output.screen import HeadlessScreen
from app.engine_link.bridge import EngineLink
from app.settings import options
from app.settings.settings import Settings
from app.storage.paths import AppPaths
from engine.api import (
    Bench,
    BenchOverhead,
    BenchPeers,
    BenchPolicies,
    BenchPrediction,
    BenchPrefill,
    BuildProfile,
    DeleteProfile,
    Plan,
    RecordTrace,
    ResetEviction,
    ShowProfile,
    TuneEviction,
    Verify,
)
from engine.config import EngineConfig, parse_bytes
from engine.events import UNLOADED, Failed, TaskEnded

Task = (
    Verify
    | Bench
    | BenchPeers
    | Plan
    | BuildProfile
    | ShowProfile
    | DeleteProfile
    | RecordTrace
    | TuneEviction
    | ResetEviction
)

_MEASURES = (Verify, BenchOverhead, BenchPeers, BenchPolicies, BenchPrediction, BenchPrefill, TuneEviction)
"""What is measured depends on the settings: they are told with it."""

_REQUEST_ID = 1
_ROUNDS = 30
_PEER_ROUNDS, _QUICK_PEER_ROUNDS = 3, 1


def run(arguments: argparse.Namespace) -> int:
    """Run the task, print what it found; 0 only when the task says it is well. Raises ConfigError, EngineFailure."""
    settings = Settings.of(arguments)
    config = settings.engine_config()
    task = _task(arguments, config)
    screen = HeadlessScreen(is_json=False)
    for problem in settings.problems:
        screen.note(problem)
    with _engine_for(task, config, screen) as link:
        ended = _run(link, task, screen)
    changes = settings.engine_changes() if isinstance(task, _MEASURES) else {}
    print_report(ended.lines, {"is_ok": ended.is_ok, **ended.report}, changes, is_json=arguments.json)
    return EXIT_OK if ended.is_ok else EXIT_FAILED


def _bench(arguments: argparse.Namespace, config: EngineConfig) -> Bench | BenchPeers:
    match arguments.bench:
        case "peers":
            return _peers(arguments, config)
        case "policies":
            links = arguments.links or ("A" if arguments.quick else "A,B,own")
            return BenchPolicies(_REQUEST_ID, arguments.quick, tuple(links.split(",")))
        case "prediction":
            return BenchPrediction(_REQUEST_ID, arguments.quick)
        case "prefill":
            return BenchPrefill(_REQUEST_ID, arguments.quick, tuple((arguments.links or "A,own").split(",")))
        case _:
            return BenchOverhead(
                _REQUEST_ID, options.at_least_one(_ROUNDS if arguments.rounds is None else arguments.rounds, "--rounds")
            )


def _peers(arguments: argparse.Namespace, config: EngineConfig) -> BenchPeers:
    """Raises ConfigError."""
    rounds = _QUICK_PEER_ROUNDS if arguments.quick else _PEER_ROUNDS
    groups = arguments.groups or ("none" if config.memory_bytes is None else f"none,{config.memory_bytes}")
    return BenchPeers(
        _REQUEST_ID,
        replace(config, model=arguments.file or config.model, memory_bytes=None, residency=None),
        tuple(None if text.strip() == "none" else parse_bytes(text) for text in groups.split(",")),
        options.at_least_one(rounds if arguments.rounds is None else arguments.rounds, "--rounds"),
        options.at_least_one(arguments.prompt_tokens, "--prompt-tokens"),
        options.at_least_one(arguments.tokens, "--tokens"),
    )


def _task(arguments: argparse.Namespace, config: EngineConfig) -> Task:
    match arguments.command:
        case "verify":
            return Verify(_REQUEST_ID, options.at_least_one(arguments.tokens, "--tokens"))
        case "bench":
            return _bench(arguments, config)
        case "plan":
            return Plan(_REQUEST_ID, config)
        case "trace":
            return record_command(arguments, _REQUEST_ID)
        case "tune":
            return tune_command(arguments, config, _REQUEST_ID)
        case _:
            return profile_command(arguments, _REQUEST_ID)


@contextmanager
def _engine_for(task: Task, config: EngineConfig, screen: HeadlessScreen) -> Iterator[EngineLink]:
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


def _run(link: EngineLink, task: Task, screen: HeadlessScreen) -> TaskEnded:
    """How the task ended. Raises EngineFailure."""
    link.send(task)
    for event in events_of(link, _REQUEST_ID):
        screen.event(event)
        if isinstance(event, TaskEnded):
            return event
        if isinstance(event, Failed) and event.kind != UNLOADED:
            raise EngineFailure(event)
    raise AssertionError("events have no end")
