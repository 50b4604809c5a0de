"""Writing a text in the user's own editor."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from engine.errors import MoeChatError


class EditorError(MoeChatError):
    """The editor could not be run."""

    title = "Editor"


def editor_command(environment: Mapping[str, str]) -> list[str]:
    """$VISUAL, else $EDITOR, else vi."""
    return shlex.split(environment.get("VISUAL") or environment.get("EDITOR") or "vi")


def edit(text: str) -> str:
    """Have `text` edited; returns what was saved. Takes over the terminal. Raises EditorError."""
    descriptor, name = tempfile.mkstemp(prefix="moe-chat-", suffix=".md")
    path = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        command = editor_command(os.environ)
        result = subprocess.run([*command, str(path)], check=False)
        if result.returncode != 0:
            raise EditorError(f"{command[0]} ended with code {result.returncode}.", "The message was not changed.")
        return path.read_text(encoding="utf-8", errors="replace").rstrip("\n")
    except (OSError, ValueError) as error:
        raise EditorError(
            f"The editor cannot be run: {error}.", "Set $VISUAL or $EDITOR to an editor that is installed."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
