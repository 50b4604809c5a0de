"""The program on an engine of tests, a process of its own: python -m tests.functional.app.on_played_engine ARGUMENTS.

Commands have one that answers at once, the app one that writes slowly. What surrounds a process (full disks, few
descriptors, streams, terminals) is tried on it without the seconds that torch takes.
"""

from __future__ import annotations

import sys

from app.cli import engine_run
from app.cli import main as cli
from app.storage.paths import AppPaths
from app.ui import launch
from engine.api import Command, Diagnose, ShowProfile, Submit
from engine.events import TaskEnded
from tests.functional.app.fake_engine import FakeEngine
from tests.functional.app.played_engine import PlayedEngine, say_paris
from tests.functional.app.scripted_engine import ScriptedEngine


def _play(engine: FakeEngine, command: Command) -> None:
    if isinstance(command, Submit):
        say_paris(engine, command)
    elif isinstance(command, ShowProfile):
        engine.tell(TaskEnded(command.request_id, True, {"profiles": []}, ("There are no profiles.",)))
    elif isinstance(command, Diagnose):
        engine.tell(TaskEnded(command.request_id, True, {"checks": []}, ()))


def make_link(paths: AppPaths) -> FakeEngine:
    """An engine that answers every question the same, and finds nothing to say otherwise."""
    return PlayedEngine(_play)


def main() -> int:
    """Run the program; returns its exit code."""
    engine_run.make_link = make_link
    launch.make_link = lambda paths: ScriptedEngine(load_s=0.01, token_s=0.08)
    return cli.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
