"""What was sent before, kept across runs: one JSON string a line, the newest last."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

MAX_ENTRIES = 500
MAX_CHARACTERS = 50_000
"""What is longer is remembered while the app runs, and not kept."""


class PromptHistory:
    """Texts in the order they were sent. `path` None: for this run only. A file that cannot be used is done without."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.texts = _read(path) if path is not None else []

    def add(self, text: str) -> None:
        """Remember a text, unless it was the last one, too."""
        if self.texts and self.texts[-1] == text:
            return
        self.texts.append(text)
        del self.texts[:-MAX_ENTRIES]
        if self._path is not None and len(text) <= MAX_CHARACTERS:
            with contextlib.suppress(OSError):
                self._append(self._path, text)

    def _append(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(text) + "\n"
        if path.exists() and path.stat().st_size > 4 * MAX_ENTRIES * 1024:
            kept = "".join(json.dumps(text) + "\n" for text in self.texts if len(text) <= MAX_CHARACTERS)
            new = path.with_suffix(".new")
            new.write_text(kept, encoding="utf-8")
            new.replace(path)
            return
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a", encoding="utf-8") as file:
            file.write(line)


def _read(path: Path) -> list[str]:
    texts = []
    with contextlib.suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            with contextlib.suppress(ValueError):
                if isinstance(text := json.loads(line), str):
                    texts.append(text)
    return texts[-MAX_ENTRIES:]
