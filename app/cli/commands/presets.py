"""`moe-chat presets`: the user's presets, on standard output."""

from __future__ import annotations

import argparse

from app.cli.chat_preset import known_presets
from app.cli.output.terminal_text import Bold, say, say_json, tell
from app.settings.preset_command import described
from app.settings.presets import SAVE


def run(arguments: argparse.Namespace) -> int:
    """Run `moe-chat presets`; returns the exit code. Raises PresetError."""
    presets = known_presets()
    if arguments.names:
        for name in presets.names():
            say(name)
    elif arguments.json:
        say_json([{"name": name, "about": about} for name, about in described(presets)])
    else:
        listed = described(presets)
        for name, about in listed:
            say(Bold(name), f" · {about}")
        if not listed:
            tell(f"No presets yet. In the chat, /preset {SAVE} NAME keeps its system prompt and sampling as one.")
    return 0
