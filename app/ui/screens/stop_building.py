"""Stopping the building of a profile, which may have taken minutes: only once confirmed."""

from __future__ import annotations

from textual.app import App

from app.domains.domain import title_of
from app.domains.profile_book import ProfileBook
from app.ui.screens.confirm import Confirm


def ask_to_stop_building(app: App[object], book: ProfileBook) -> None:
    """Ask whether the task that runs now is to be stopped. The answer is not taken for one that begins meanwhile."""
    task = book.task
    if task is None or not task.is_build or task.is_cancelling:
        return

    def answered(is_meant: bool | None) -> None:
        if is_meant and book.task is task:
            book.cancel()

    title = f"Stop building the profile of {title_of(task.domain)}?"
    app.push_screen(Confirm(title, "What was recorded so far is lost; an earlier profile stays as it is."), answered)
