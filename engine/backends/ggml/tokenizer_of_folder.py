"""A folder's tokenizer: made without the model library where it is the same, else by the library."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from engine.backends.tokenizers.folder_tokenizer import fast_tokenizer_of
from engine.errors import CheckpointError


class TokenizerOfFolder:
    """Made before the budget is planned: a library that has to be imported for it is then in the plan."""

    def __init__(self, folder: Path) -> None:
        """Raises nothing: what is wrong with the files is told by `load`."""
        self._folder = folder
        self._fast: Any = None
        with suppress(CheckpointError):
            self._fast = fast_tokenizer_of(folder)
            if self._fast is None:
                import engine.backends.transformers.config_and_tokenizer  # noqa: F401

    def load(self) -> Any:
        """Raises CheckpointError."""
        if self._fast is None:
            self._fast = fast_tokenizer_of(self._folder)
        if self._fast is not None:
            return self._fast
        from engine.backends.transformers.config_and_tokenizer import load_tokenizer

        return load_tokenizer(self._folder)
