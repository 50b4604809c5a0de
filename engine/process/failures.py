"""Any exception as an event: our own say what to do, others point to the log."""

from __future__ import annotations

import os
import traceback

from engine.child_process import log_problem
from engine.errors import ContextFullError, MoeChatError
from engine.events import CONTEXT_FULL, Failed
from offload.errors import OffloadError

_NUM_CALLS = 4
"""Calls that are told where there is no log."""


def failure_of(request_id: int | None, error: Exception, is_fatal: bool) -> Failed:
    """What the user is told of `error`."""
    if isinstance(error, ContextFullError):
        return Failed(
            request_id,
            error.title,
            error.message,
            error.hint,
            is_fatal,
            kind=CONTEXT_FULL,
            prompt_tok=error.prompt_tok,
            context_tok=error.context_tok,
        )
    if isinstance(error, (MoeChatError, OffloadError)):
        return Failed(request_id, error.title, error.message, error.hint, is_fatal)
    message = "".join(traceback.format_exception_only(error)).strip()
    return Failed(request_id, "Unexpected error", message, _where(error), is_fatal)


def _where(error: Exception) -> str:
    """Where the details are: in the log; where it cannot be written, the innermost calls are told here."""
    problem = log_problem()
    if not problem:
        return "The details are in the engine's log."
    calls = traceback.extract_tb(error.__traceback__)[-_NUM_CALLS:]
    places = ", called from ".join(f"{_short(call.filename)}:{call.lineno} ({call.name})" for call in reversed(calls))
    return f"The engine's log cannot be written ({problem}). It happened in {places or 'an unknown place'}."


def _short(path: str) -> str:
    """The last two parts of a file's path."""
    return "/".join(path.split(os.sep)[-2:])
