"""`moe-chat trace`: replays, which need no engine; recording is a task of the engine."""

from __future__ import annotations

import argparse
from pathlib import Path

from app.cli.output.report import print_report
from app.cli.output.screen import HeadlessScreen
from engine.config import parse_residency
from engine.events import TaskProgress


def run(arguments: argparse.Namespace) -> int:
    """Run `moe-chat trace`; returns the exit code."""
    if arguments.trace == "replay":
        return _replay(arguments)
    from app.cli.commands import tasks

    return tasks.run(arguments)


def _replay(arguments: argparse.Namespace) -> int:
    """In this process: it takes seconds, and ctrl+c ends it."""
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
    return 0
