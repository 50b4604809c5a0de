"""What the screen costs, measured: `python -m devtools.screen_cost`.

One engine answers both ways, so that nothing else differs: the app runs in a pseudo-terminal with every panel, asks,
gives the terminal back, and asks the same as `moe-chat ask` does; who goes first changes every time. Sampling is
greedy, and nothing is kept. What a terminal spends on drawing is not the app's, and not in it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from app.cli.engine_run import EngineFailure
from app.cli.output.screen import HeadlessScreen
from app.cli.output.terminal_text import print_report
from app.cli.usage import EXIT_FAILED, EXIT_OK
from app.process.instance import InstanceLock
from app.settings.settings import Settings
from app.storage.paths import AppPaths
from devtools.screen_cost.cost import ScreenCost
from devtools.screen_cost.unseen_terminal import UnseenTerminal
from engine.errors import MoeChatError
from engine.events import Failed, TaskProgress

_COLUMNS, _ROWS = 120, 40
_PAIRS, _QUICK_PAIRS = 30, 12
_TOK, _QUICK_TOK = 96, 48


def bench_screen(arguments: argparse.Namespace) -> int:
    """Measure and print; returns the exit code. Raises MoeChatError."""
    settings = _greedy(Settings.of(arguments), _QUICK_TOK if arguments.quick else _TOK)
    num_pairs = _QUICK_PAIRS if arguments.quick else _PAIRS
    if arguments.rounds is not None:
        num_pairs = arguments.rounds
    paths, screen = AppPaths.from_environment(), HeadlessScreen()
    lock = InstanceLock(paths.instance_lock)
    for note in (*settings.problems, lock.acquire()):
        if note:
            screen.note(note)
    try:
        cost = _measured(settings, paths, num_pairs, screen)
    finally:
        lock.release()
    print_report(cost.lines(), cost.as_dict(), settings.engine_changes(), is_json=arguments.json)
    return EXIT_OK if cost.is_ok else EXIT_FAILED


def _greedy(settings: Settings, num_tok: int) -> Settings:
    """The user's settings, with answers that come out the same again, and no welcome."""
    sampling = {"sampling.temperature": 0.0, "sampling.max_tokens": num_tok}
    settings.overrule(sampling)
    settings.hold(sampling)
    settings.is_first_run = False
    return settings


def _measured(settings: Settings, paths: AppPaths, num_pairs: int, screen: HeadlessScreen) -> ScreenCost:
    """Raises MoeChatError."""

    def work(tell: Callable[[object], None]) -> None:
        from devtools.screen_cost.asking_app import run_app

        run_app(settings, paths, Path(folder) / "chats.db", num_pairs, tell)

    with TemporaryDirectory() as folder, closing(UnseenTerminal(work, _COLUMNS, _ROWS)) as terminal:
        for told in terminal.messages():
            match told:
                case TaskProgress():
                    screen.event(told)
                case Failed():
                    raise EngineFailure(told)
                case ScreenCost():
                    screen.clear_progress()
                    return told
    raise MoeChatError("The app ended before all was measured.", f"Its log: {paths.app_log}")
