"""Errors of the offload core.

OffloadError
├── BudgetError         the byte budget cannot hold what was asked for
│   └── ContextLengthError   the model cannot have a context of that length
├── ExpertReadError     an expert's bytes could not be read from the host tier
├── TraceError          a file of recorded routing is damaged, foreign or of another version
├── ProfileError        a domain profile is damaged, or belongs to another model
├── WeightsError        tuned eviction weights are damaged, or belong to another model
└── WaitCancelled       a wait for the link was given up because the user stopped
"""

from __future__ import annotations


class OffloadError(Exception):
    """Base of the tree: a message for a person, and a hint of what to do about it."""

    title = "Offload error"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class BudgetError(OffloadError):
    """The byte budget is too small. `needed_bytes` is the smallest budget that would work."""

    title = "The memory budget is too small"

    def __init__(self, message: str, hint: str = "", needed_bytes: int | None = None) -> None:
        super().__init__(message, hint)
        self.needed_bytes = needed_bytes


class ContextLengthError(BudgetError):
    """A context was asked for that the model cannot have, whatever the budget."""

    title = "The model has no such context length"


class ExpertReadError(OffloadError):
    """Reading an expert's bytes failed: a truncated or vanished file, or an I/O error."""

    title = "An expert could not be read"


class TraceError(OffloadError):
    """A routing trace cannot be read, or does not fit what it is used with."""

    title = "A routing trace cannot be used"


class ProfileError(OffloadError):
    """A domain profile cannot be read, or was made for another model."""

    title = "A domain profile cannot be used"


class WeightsError(OffloadError):
    """Tuned eviction weights cannot be read, or were found for another model."""

    title = "Tuned eviction weights cannot be used"


class WaitCancelled(OffloadError):
    """Raised out of a wait for the link when generation was cancelled."""

    title = "Stopped"
