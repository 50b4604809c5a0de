"""Completing the path of a file that is named in a message."""

from __future__ import annotations

import os
from itertools import islice

from app.commands.typed import Completion
from app.formatting import mention
from app.formatting.sanitise import whole

_LOOKED_AT = 5000
"""Entries of a folder, at most."""
_OFFERED = 100


def path_completions(before: str) -> list[Completion]:
    """What the word with `@` that `before` ends with can become: folders, then files, by name.

    What begins with a dot is offered once the dot is typed.
    """
    begun = mention.begun(before)
    if begun is None:
        return []
    folder, _, name = begun.path.rpartition("/")
    folder += "/" if "/" in begun.path else ""
    try:
        with os.scandir(os.path.expanduser(folder) or ".") as entries:
            fitting = [entry for entry in islice(entries, _LOOKED_AT) if _is_offered(entry.name, name)]
        sorted_entries = sorted((not entry.is_dir(), entry.name.lower(), entry.name) for entry in fitting)
    except (OSError, ValueError):
        return []
    return [
        Completion(_word(folder + entry_name, is_file=is_file), "file" if is_file else "folder", begun.length)
        for is_file, _, entry_name in sorted_entries[:_OFFERED]
    ]


def _is_offered(entry: str, typed: str) -> bool:
    is_shown = not entry.startswith(".") or typed.startswith(".")
    return is_shown and entry.lower().startswith(typed.lower()) and whole(entry) == entry and "\n" not in entry


def _word(path: str, *, is_file: bool) -> str:
    """A mention; of a folder one that can be gone on with."""
    return mention.written(path) if is_file else mention.written(path + "/").removesuffix('"')
