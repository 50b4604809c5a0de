"""`moe-chat doctor`: what the chat depends on, checked; the app's own checks first, then the engine's."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from app.cli.commands.self_checks import FAIL, OK, WARN, Check, self_checks
from app.cli.engine_run import is_of, started_engine
from app.cli.output.screen import HeadlessScreen
from app.cli.output.terminal_text import Bold, say, say_json
from app.cli.usage import EXIT_FAILED, EXIT_OK
from app.engine_link.bridge import EngineLink
from app.settings.settings import Settings
from app.storage.paths import AppPaths
from engine.api import Diagnose
from engine.errors import MoeChatError
from engine.events import Failed, TaskEnded

_REQUEST_ID = 1
_POLL_S, _PATIENCE_S = 0.1, 90.0
_SIGNS = {OK: "✓", WARN: "!", FAIL: "✗"}


def run(arguments: argparse.Namespace) -> int:
    """Run `moe-chat doctor`; returns the exit code: 1 when a check failed. Raises ConfigError."""
    settings, paths = Settings.of(arguments), AppPaths.from_environment()
    diagnose = Diagnose(_REQUEST_ID, settings.engine_config())
    checks = []
    for check in _all_checks(paths, settings, diagnose):
        checks.append(check)
        if not arguments.json:
            _print(check)
    if arguments.json:
        say_json({"is_ok": not _failed(checks), "checks": [asdict(check) for check in checks]})
    else:
        say(_summary(checks))
    return EXIT_FAILED if _failed(checks) else EXIT_OK


def _all_checks(paths: AppPaths, settings: Settings, diagnose: Diagnose) -> Iterator[Check]:
    yield from self_checks(paths, settings)
    yield from _engine_checks(paths, diagnose)


def _engine_checks(paths: AppPaths, diagnose: Diagnose) -> Iterator[Check]:
    """What the engine found; where its process cannot be started, ends or is silent, that is what was found."""
    screen = HeadlessScreen()
    try:
        with started_engine(paths, screen) as link:
            link.send(diagnose)
            ended = _diagnosed(link, screen)
    except OSError as error:
        yield Check("engine", FAIL, f"Its process could not be started: {error}.", f"Its log: {paths.engine_log}")
    except MoeChatError as error:
        yield Check("engine", FAIL, error.message, error.hint)
    else:
        if isinstance(ended, TaskEnded):
            yield from _checks_in(ended)
        elif isinstance(ended, Failed):
            yield Check("engine", FAIL, f"{ended.title}: {ended.message}", ended.hint)
        else:
            yield Check("engine", FAIL, f"It said nothing for {_PATIENCE_S:.0f} s.", f"Its log: {paths.engine_log}")


def _diagnosed(link: EngineLink, screen: HeadlessScreen) -> TaskEnded | Failed | None:
    """How the diagnosis ended; None: the engine is silent."""
    heard_at = time.monotonic()
    while time.monotonic() - heard_at < _PATIENCE_S:
        event = link.wait_event(_POLL_S)
        if event is None or not is_of(event, _REQUEST_ID):
            continue
        heard_at = time.monotonic()
        screen.event(event)
        if isinstance(event, TaskEnded | Failed):
            return event
    return None


def _checks_in(ended: TaskEnded) -> Iterator[Check]:
    checks = ended.report.get("checks")
    for check in checks if isinstance(checks, list) else ():
        yield Check(check["name"], check["verdict"], check["found"], check.get("advice", ""))


def _print(check: Check) -> None:
    sign = f"{_SIGNS.get(check.verdict, '?')} {check.verdict:<4}"
    say(Bold(sign) if check.verdict != OK else sign, f"  {check.name:<15}{check.found}")
    if check.advice and check.verdict != OK:
        say(f"{'':<22}{check.advice}")


def _failed(checks: Sequence[Check]) -> list[Check]:
    return [check for check in checks if check.verdict == FAIL]


def _summary(checks: Sequence[Check]) -> str:
    failed, warned = len(_failed(checks)), sum(check.verdict == WARN for check in checks)
    if not failed and not warned:
        return "All checks passed."
    return f"{failed} of {len(checks)} checks failed, {warned} with a warning."
