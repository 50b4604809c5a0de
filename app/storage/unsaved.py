"""What becomes of chats at the end of a run: saved, or written to a file beside."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from app.storage import export
from app.storage.database import StoreError
from app.storage.recorder import Recorder
from engine.errors import MoeChatError


class NotSavedError(MoeChatError):
    """Something of the chats of this run is not in the chat database."""

    title = "Not saved"

    def __init__(self, problem: StoreError, beside: Path | None) -> None:
        """`beside` is the file that has it instead."""
        hint = f"It is in {beside}: `moe-chat chats import` reads it once the database can be written."
        super().__init__(problem.in_full, "" if beside is None else hint)


def finish(recorder: Recorder, wait_s: float) -> NotSavedError | None:
    """Write what waits and close the database; what cannot be written goes to a file in the temporary folder.

    `wait_s`: how long another program that holds the database is waited for. Returns what is to be said about what is
    not saved; None: everything is.
    """
    problem = recorder.finish(wait_s)
    return None if problem is None else NotSavedError(problem, _written_beside(recorder))


def _written_beside(recorder: Recorder) -> Path | None:
    """The file that has the chats of this run which are not in the database; None: it cannot be written either."""
    try:
        descriptor, name = tempfile.mkstemp(prefix="moe-chat-unsaved-", suffix=".json")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(export.as_json([export.KeptChat(*chat) for chat in recorder.unsaved()]))
    except OSError:
        return None
    return Path(name)
