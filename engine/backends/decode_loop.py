"""Drawing tokens one after the other: the same for every back end, over its `step`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any

from engine.arrays import Array
from engine.errors import NonFiniteLogitsError
from engine.experts.step_state import StepState
from engine.sampling.sampler import Sampler


class DecodeLoop(ABC):
    """Base of the back ends' decoders. After every call `cache.tokens` is what the KV cache holds."""

    cache: Any
    """The back end's KV cache: `tokens`, `keep_prefix`, `reset`, and where its states are approximate."""

    def __init__(self, state: StepState, context_tok: int) -> None:
        self._state, self._context_tok = state, context_tok

    def prefill(self, prompt: Sequence[int], on_progress: Callable[[int], None]) -> Array:
        """Computes the prompt beyond what the cache holds; returns the last position's logits [vocab]. At its end the
        expert cache drops what the eviction policy does not want to keep of it.

        `on_progress(tokens done)`. Raises WaitCancelled, ExpertReadError, NonFiniteLogitsError; the cache then holds
        what was completed.
        """
        logits = self._prefill(prompt, on_progress)
        self._state.after_prefill()
        return logits

    @abstractmethod
    def _prefill(self, prompt: Sequence[int], on_progress: Callable[[int], None]) -> Array:
        """The prompt alone; see `prefill`."""

    @abstractmethod
    def step(self, token: int) -> Array:
        """Computes one token behind what the cache holds; returns the logits [vocab] after it.

        Raises WaitCancelled, ExpertReadError, NonFiniteLogitsError, with the cache as it was, or holding fewer tokens
        where a recurrent state was changed.
        """

    @abstractmethod
    def chunk_at(self, start: int, num_prompt_tok: int) -> int:
        """Tokens of the part of a prompt that is computed in one go from `start` on: progress is told by its layers."""

    def tokens(self, logits: Array, sampler: Sampler, num_new_tok: int) -> Iterator[int]:
        """Yields drawn tokens; asks for the next forward only when the next token is asked for.

        Raises what `step` raises, with the cache as it leaves it.
        """
        for remaining in range(num_new_tok, 0, -1):
            length = len(self.cache.tokens)
            token = sampler.draw(logits, self.cache.tokens)
            yield token
            if remaining == 1 or length >= self._context_tok:
                return
            began_s = perf_counter()
            logits = self.step(token)
            self._state.forward_s += perf_counter() - began_s

    def force(self, tokens: Sequence[int]) -> Iterator[Array]:
        """Decodes given tokens one by one and yields the logits [vocab] after each: for comparing modes on one text."""
        for token in tokens:
            yield self.step(token)


def require_finite(logits: Array, num_tok: int) -> None:
    """One reduction a step: the largest of `logits` [vocab] is NaN where any of them is, and infinite where no token
    can be chosen. Raises NonFiniteLogitsError."""
    if not math.isfinite(float(logits.max())):
        raise NonFiniteLogitsError(
            f"After {num_tok} tokens the model's logits are not finite: no next token can be chosen.",
            "A weight is damaged, or overflows in this number format. To find out which: moe-chat verify",
        )
