"""How a task's report is printed: for a person, or as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.cli.output.terminal_text import say, say_json


def print_report(
    lines: Sequence[str], figures: Mapping[str, object], settings: Mapping[str, str], *, is_json: bool
) -> None:
    """The report, and the settings that it was made under where they are not the defaults."""
    if is_json:
        under = {"settings": dict(settings)} if settings else {}
        say_json({**under, **figures})
        return
    say("\n".join(lines))
    if settings:
        say("settings: " + ", ".join(f"{key} = {text}" for key, text in settings.items()))
