"""Errors a person can act on: what happened, and what to do.

MoeChatError
├── ConfigError              contradictory or unknown settings
├── ModelNotFoundError       no such folder, or no such model on the hub
├── CheckpointError          the folder exists and is damaged: missing shard, wrong header, NaN router
├── NonFiniteLogitsError     the model computed NaN: a weight is damaged, or overflows
├── UnsupportedModelError    the architecture or file format cannot be run, and why
├── DownloadError            fetching failed: offline, gated, no space
├── DemoBuildError           the demo model could not be built
├── ContextFullError         the prompt does not fit into the context
├── UnusableFileError        a file of recorded routing or of tuned weights is damaged or of another model
└── EngineDiedError          the engine's process is gone
"""

from __future__ import annotations


class MoeChatError(Exception):
    """Base of the tree: a title, a message for a person, and a hint of what to do."""

    title = "Error"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def in_full(self) -> str:
        """What happened and what to do about it, in a line."""
        return f"{self.message} {self.hint}".strip()


class ConfigError(MoeChatError):
    """Settings that contradict each other, or a value out of range."""

    title = "Settings"


class ModelNotFoundError(MoeChatError):
    """No folder or hub model has this name."""

    title = "No such model"


class CheckpointError(MoeChatError):
    """The checkpoint is damaged or incomplete."""

    title = "Damaged checkpoint"


class NonFiniteLogitsError(MoeChatError):
    """A forward gave logits from which no token can be chosen."""

    title = "The model's logits are not finite"


class UnsupportedModelError(MoeChatError):
    """The model cannot be run here, said before anything is loaded."""

    title = "Unsupported model"


class DownloadError(MoeChatError):
    """Fetching a model failed."""

    title = "Download failed"


class DemoBuildError(MoeChatError):
    """The demo model could not be built; no partial checkpoint is left."""

    title = "The demo model could not be built"


class ContextFullError(MoeChatError):
    """The prompt, of `prompt_tok` tokens, does not fit into the context of `context_tok` that the budget affords."""

    title = "The context is full"

    def __init__(self, message: str, hint: str, prompt_tok: int, context_tok: int) -> None:
        super().__init__(message, hint)
        self.prompt_tok, self.context_tok = prompt_tok, context_tok


class UnusableFileError(MoeChatError):
    """A file that `offload` refused, with its title and reason; for callers outside the engine's process."""

    def __init__(self, title: str, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.title = title


class EngineDiedError(MoeChatError):
    """The engine's process ended without being asked to."""

    title = "The engine stopped"
