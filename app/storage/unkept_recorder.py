"""Chats that are not to be kept."""

from __future__ import annotations

from app.storage.recorder import Recorder


class UnkeptRecorder(Recorder):
    """Writes nothing: everything stays in memory. What was kept before can be read."""

    def flush(self) -> None:
        """Nothing is written."""
