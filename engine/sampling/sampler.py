"""How the next token is drawn: the library's logits processors, a seeded generator, greedy when temperature is 0."""

from __future__ import annotations

import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
)

from engine.config import SamplingConfig
from engine.sampling.nucleus import NucleusWarper


class Sampler:
    """Draws tokens of one answer. Greedy ids equal those of the library's `generate` with the same settings."""

    def __init__(self, config: SamplingConfig) -> None:
        self._is_greedy = not config.temperature
        self._processors = LogitsProcessorList()
        if config.repetition_penalty and config.repetition_penalty != 1.0:
            self._processors.append(RepetitionPenaltyLogitsProcessor(config.repetition_penalty))
        if not self._is_greedy:
            self._add_warpers(config)
        self._generator = torch.Generator()
        if config.seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(config.seed)

    def _add_warpers(self, config: SamplingConfig) -> None:
        assert config.temperature is not None
        if config.temperature != 1.0:
            self._processors.append(TemperatureLogitsWarper(config.temperature))
        if config.top_k:
            self._processors.append(TopKLogitsWarper(top_k=config.top_k))
        if config.top_p is not None and config.top_p < 1.0:
            self._processors.append(NucleusWarper(max(config.top_p, 1e-6)))
        if config.min_p:
            self._processors.append(MinPLogitsWarper(min_p=config.min_p))

    def draw(self, logits: torch.Tensor, context: torch.Tensor) -> int:
        """The next token from `logits` [vocab], after `context` [1, tokens] int64 (prompt and answer so far)."""
        if self._is_greedy and not self._processors:
            return int(logits.argmax())
        scores = self._processors(context, logits.to(torch.float32, copy=True).unsqueeze(0))
        if self._is_greedy:
            return int(scores.argmax())
        return int(torch.multinomial(scores.softmax(dim=-1), 1, generator=self._generator))
