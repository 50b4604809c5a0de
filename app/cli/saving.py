"""Chats of a command without a screen are saved at its end, or said not to be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from app.cli.output.screen import HeadlessScreen
from app.storage.database import StoreLockedError
from app.storage.recorder import Recorder
from app.storage.unsaved import finish

LOCK_WAIT_S = 10.0
"""How long the end waits for another program that holds the chat database."""


@contextmanager
def saving(recorder: Recorder, screen: HeadlessScreen) -> Iterator[None]:
    """At the end, save what is not saved. Raises NotSavedError; where something else is raised, it is only said."""
    try:
        yield
    except BaseException as error:
        # Whoever interrupts the program does not wait.
        failure = finish(recorder, LOCK_WAIT_S if isinstance(error, Exception) else 0.0)
        if failure is not None:
            screen.note(f"{failure.title}: {failure.message} {failure.hint}".strip())
        raise
    if isinstance(recorder.problem, StoreLockedError):
        screen.note(f"Waiting for the chat database, at most {LOCK_WAIT_S:.0f} s.")
    failure = finish(recorder, LOCK_WAIT_S)
    if failure is not None:
        told = {"title": failure.title, "message": failure.message, "hint": failure.hint, "kind": "not_saved"}
        screen.json({"event": "error", **told})
        raise failure
