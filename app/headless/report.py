"""How a task's report is printed: for a person, or as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from app.sanitise import visible


def print_report(
    lines: Sequence[str], figures: Mapping[str, object], settings: Mapping[str, str], *, is_json: bool
) -> None:
    """The report, and the settings that it was made under where they are not the defaults."""
    if is_json:
        under = {"settings": dict(settings)} if settings else {}
        print(json.dumps({**under, **figures}, ensure_ascii=False, indent=2))
        return
    print("\n".join(lines))
    if settings:
        print(visible("settings: " + ", ".join(f"{key} = {text}" for key, text in settings.items())))
