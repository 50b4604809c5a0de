"""`moe-chat verify` and `moe-chat bench overhead`: long-running requests to the engine, without a screen."""

from __future__ import annotations

import argparse
import json

from app import options
from app.headless import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EngineFailure, Interrupt, events_of, running_engine
from app.headless_screen import HeadlessScreen
from engine.api import BenchOverhead, Cancel, Verify
from engine.errors import ConfigError
from engine.events import Failed, TaskEnded

_REQUEST_ID = 1


def _command(arguments: argparse.Namespace) -> Verify | BenchOverhead:
    number, flag = (arguments.tokens, "--tokens") if arguments.command == "verify" else (arguments.rounds, "--rounds")
    if number < 1:
        raise ConfigError(f"{flag} is {number}.", "It must be at least 1.")
    return Verify(_REQUEST_ID, number) if arguments.command == "verify" else BenchOverhead(_REQUEST_ID, number)


def run(arguments: argparse.Namespace) -> int:
    """Load the model, run the task, print what it found; 0 only when the task says it is well."""
    config, command = options.engine_config(arguments), _command(arguments)
    interrupt, screen = Interrupt(), HeadlessScreen(is_json=False)
    with interrupt.installed(), running_engine(config, screen, interrupt) as (link, _ready):
        link.send(command)
        for event in events_of(link, interrupt, on_interrupt=lambda: link.send(Cancel(_REQUEST_ID))):
            screen.event(event)
            if isinstance(event, Failed):
                raise EngineFailure(event)
            if isinstance(event, TaskEnded):
                screen.clear_progress()
                print(
                    json.dumps({"is_ok": event.is_ok, **event.report}, ensure_ascii=False, indent=2)
                    if arguments.json
                    else "\n".join(event.lines)
                )
                if interrupt.since is not None:
                    return EXIT_INTERRUPTED
                return EXIT_OK if event.is_ok else EXIT_FAILED
    return EXIT_INTERRUPTED
