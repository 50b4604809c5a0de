"""Errors for a person on the screen, and their traceback in the log."""

from __future__ import annotations

import traceback
from datetime import datetime

from app.storage.paths import AppPaths


def describe(title: str, message: str, hint: str) -> str:
    """An error as text: what happened, and below it what to do."""
    return f"{title}: {message}" + (f"\n{hint}" if hint else "")


def log_crash(error: BaseException) -> str:
    """Append the traceback to the app's log; returns what to tell the user."""
    paths = AppPaths.from_environment()
    happened = f"moe-chat met an unexpected error ({type(error).__name__})."
    try:
        paths.app_log.parent.mkdir(parents=True, exist_ok=True)
        with paths.app_log.open("a", encoding="utf-8") as log:
            log.write(f"--- {datetime.now().astimezone().isoformat(timespec='seconds')}\n")
            traceback.print_exception(error, file=log)
    except OSError as refused:
        return f"{happened}\nThe log {paths.app_log} could not be written: {refused.strerror}."
    return f"{happened}\nDetails: {paths.app_log}"
