"""How the next token is drawn: the library's logits processors, a seeded generator, greedy when temperature is 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from engine.config import SamplingConfig


class Sampler:
    """Draws tokens of one answer. Greedy ids equal those of the library's `generate` with the same settings."""

    def __init__(self, config: SamplingConfig) -> None:
        self._is_greedy = not config.temperature
        self._process: Callable[[Any, Any], Any] | None = None
        if not self._is_greedy or (config.repetition_penalty or 1.0) != 1.0:
            from engine.sampling.processors import processors_of  # imports the model library, which takes seconds

            self._process = processors_of(config)
        self._generator = torch.Generator()
        if config.seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(config.seed)

    def draw(self, logits: torch.Tensor, context: torch.Tensor) -> int:
        """The next token from `logits` [vocab], after `context` [1, tokens] int64 (prompt and answer so far)."""
        if self._process is None:
            return int(logits.argmax())
        scores = self._process(context, logits.to(torch.float32, copy=True).unsqueeze(0))
        if self._is_greedy:
            return int(scores.argmax())
        return int(torch.multinomial(scores.softmax(dim=-1), 1, generator=self._generator))
