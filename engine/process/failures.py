"""Any exception as an event: our own say what to do, others point to the log."""

from __future__ import annotations

from engine.errors import ContextFullError, MoeChatError
from engine.events import CONTEXT_FULL, Failed
from offload.errors import OffloadError


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
    message = f"{type(error).__name__}: {error}"
    return Failed(request_id, "Unexpected error", message, "The details are in the engine's log.", is_fatal)
