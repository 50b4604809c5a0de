"""Whether the files that a loaded model reads its experts from are still what was loaded."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from engine.checkpoint.changes import changed_file, require_unchanged, stamp_files
from engine.events import Notice


class WeightsWatch:
    """Looks at the files' sizes and times between answers: one `stat` a file."""

    def __init__(self, files: Iterable[Path]) -> None:
        """Takes the files as they are now. Raises OSError where one is missing."""
        self._stamps = stamp_files(files)

    def require_unchanged(self) -> None:
        """Raises CheckpointError, which names the file: what would be computed is not this model's answer."""
        require_unchanged(self._stamps)

    def notice(self) -> Notice | None:
        """What to tell after an answer during which a file was changed; None: none has."""
        path = changed_file(self._stamps)
        if path is None:
            return None
        message = f"{path} was changed while the model answered from it: the last answer may be wrong."
        return Notice(message, "Restore the file, then load the model again.")
