"""Errors for a person on the screen, and their traceback in the log."""

from __future__ import annotations

import os
import traceback
from datetime import datetime

from app.storage.paths import AppPaths
from app.storage.system_errors import open_file, reason


def describe(title: str, message: str, hint: str) -> str:
    """An error as text: what happened, and below it what to do."""
    return f"{title}: {message}" + (f"\n{hint}" if hint else "")


def log_crash(error: BaseException) -> str:
    """Append the traceback to the app's log; returns what to tell the user."""
    paths = AppPaths.from_environment()
    happened = f"moe-chat met an unexpected error ({type(error).__name__})."
    try:
        paths.app_log.parent.mkdir(parents=True, exist_ok=True)
        written = "".join(traceback.format_exception(error))
        with open_file(paths.app_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as log:
            log.write(
                f"--- {datetime.now().astimezone().isoformat(timespec='seconds')}\n{written}".encode("utf-8", "replace")
            )
    except OSError as refused:
        return f"{happened}\nThe log {paths.app_log} could not be written: {reason(refused)}."
    return f"{happened}\nDetails: {paths.app_log}"
