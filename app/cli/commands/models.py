"""`moe-chat models`: the models on this machine, and what each would cost and give at this budget."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from app.cli.output.terminal_text import Bold, say, say_json
from app.cli.usage import EXIT_OK
from app.formatting.model_words import COSTS_EXPLAINED, model_costs, model_shape
from app.settings.settings import Settings
from engine.checkpoint.catalogue import ModelEntry
from engine.commands.model_menu import list_models


def run(arguments: argparse.Namespace) -> int:
    """Run `moe-chat models`; returns the exit code. Raises ConfigError."""
    settings = Settings.of(arguments)
    settings.engine_config()  # what the command line asks for is checked
    folders = [*settings.model_folders(), *(Path(folder).expanduser() for folder in arguments.folder)]
    entries = sorted(list_models(folders, settings.config_of_others()), key=lambda entry: not entry.is_supported)
    if arguments.json:
        say_json([asdict(entry) for entry in entries])
    else:
        _print(entries)
    return EXIT_OK


def _print(entries: Sequence[ModelEntry]) -> None:
    for entry in entries:
        say(Bold(entry.name))
        if not entry.is_supported:
            say(f"    cannot be run: {entry.reason}")
        for line in (model_shape(entry), model_costs(entry), f"--model {entry.location}" if entry.is_supported else ""):
            if line:
                say(f"    {line}")
    if any(entry.costs for entry in entries):
        say(COSTS_EXPLAINED)
