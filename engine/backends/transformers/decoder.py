"""Chunked prefill, then one token at a time over `model.forward` with a preallocated cache.

It replaces the library's `generate`, which costs 5-15 ms a token around the forward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch

from engine.backends.decode_loop import DecodeLoop, require_finite
from engine.backends.transformers.experts_interface import ForwardLeft
from engine.backends.transformers.kv_cache import KvCache
from engine.experts.step_state import StepState
from offload.errors import WaitCancelled


class Decoder(DecodeLoop):
    """Runs one model over one cache. Every forward leaves `cache.tokens` equal to what the cache holds, or drops it."""

    def __init__(self, model: Any, cache: KvCache, state: StepState, context_tok: int, chunk_tok: int) -> None:
        super().__init__(state, context_tok)
        self._ids = torch.zeros(1, context_tok, dtype=torch.long)
        self.cache: KvCache = cache
        self._model, self._chunk_tok = model, chunk_tok

    def _prefill(self, prompt: Sequence[int], on_progress: Callable[[int], None]) -> torch.Tensor:
        """See DecodeLoop: chunk by chunk. Where it raises, the cache holds the completed chunks."""
        self._ids[0, : len(prompt)] = torch.tensor(prompt, dtype=torch.long)
        self._state.is_decode = False
        start = len(self.cache.tokens)
        logits = None
        while start < len(prompt):
            end = start + self.chunk_at(start, len(prompt))
            logits = self._forward(prompt[start:end], start, end)
            start = end
            on_progress(start)
            if self._state.is_cancelled():
                raise WaitCancelled("Stopped.")
        assert logits is not None, "a prompt always has a token that is not cached"
        return logits

    def run_at(self, past_tok: int) -> int:
        """One prefill chunk behind `past_tok` cached tokens of any content, up to a LeavingLayer; empties the cache.

        Returns the length it ran to: a chunk's where the cache's layers are not all our own.
        """
        chunk_tok = min(self._chunk_tok, self._context_tok)
        past_tok = self.cache.assume_length(min(past_tok, self._context_tok - chunk_tok))
        self._state.is_decode = False
        try:
            with torch.inference_mode(), suppress(ForwardLeft):
                ids = self._ids[:, past_tok : past_tok + chunk_tok]
                self._model(input_ids=ids, cache=self.cache.cache, use_cache=True, logits_to_keep=1)
        finally:
            self.cache.reset()
        return past_tok + chunk_tok

    def step(self, token: int) -> torch.Tensor:
        """Computes one token behind what the cache holds; returns the logits [vocab] after it.

        Raises WaitCancelled, ExpertReadError, NonFiniteLogitsError, with the cache as it was.
        """
        length = len(self.cache.tokens)
        self._ids[0, length] = token
        self._state.is_decode = True
        return self._forward([token], length, length + 1)

    def chunk_at(self, start: int, num_prompt_tok: int) -> int:
        """Tokens of the prefill chunk that begins at `start`."""
        return min(self._chunk_tok, num_prompt_tok - start)

    def _forward(self, tokens: Sequence[int], start: int, end: int) -> torch.Tensor:
        before = self._state.substituted
        if self._state.recorder is not None:
            self._state.recorder.begin(end - start, is_prefill=not self._state.is_decode)
        try:
            with torch.inference_mode():
                output = self._model(
                    input_ids=self._ids[:, start:end], cache=self.cache.cache, use_cache=True, logits_to_keep=1
                )
            logits: torch.Tensor = output.logits[0, -1]
            require_finite(logits, end)
        except BaseException:
            self._state.abandon_prefill()
            self._undo(start)
            raise
        self.cache.adopt(output.cache)
        self.cache.tokens.extend(tokens)
        if self._state.substituted > before:
            self.cache.note_approximate(start)
        return logits

    def _undo(self, length: int) -> None:
        """Removes what an interrupted forward wrote: crops every layer to `length`, or empties the cache."""
        self.cache.tokens[length:] = []
        self.cache.restore(length)
