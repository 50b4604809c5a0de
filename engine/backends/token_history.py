"""The ids whose states a KV cache holds, and from which of them on they are approximate."""

from __future__ import annotations


class TokenHistory:
    """Base of a KV cache that is cropped by forgetting its last tokens."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        """Ids whose states are held, in order."""
        self._first_approximate_tok: int | None = None

    @property
    def is_approximate(self) -> bool:
        """Whether some of these states were written with substituted experts."""
        return self._first_approximate_tok is not None

    @property
    def num_exact_tok(self) -> int:
        """Tokens from the first on whose states were all computed exactly."""
        return len(self.tokens) if self._first_approximate_tok is None else self._first_approximate_tok

    def note_approximate(self, position: int) -> None:
        """The token at `position` was computed with substituted experts, and so is all that follows it."""
        if self._first_approximate_tok is None:
            self._first_approximate_tok = position

    def keep_prefix(self, length_tok: int) -> bool:
        """Keeps the first `length_tok` tokens' states, or fewer where recurrent states are kept of fewer alone. False:
        not possible, and the cache was emptied."""
        del self.tokens[length_tok:]
        if self._first_approximate_tok is not None and self._first_approximate_tok >= length_tok:
            self._first_approximate_tok = None
        return True

    def reset(self) -> None:
        """Empties the cache; its memory is kept and used again."""
        self.tokens.clear()
        self._first_approximate_tok = None
