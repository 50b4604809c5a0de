"""Drawing tokens from torch logits: the library's logits processors, and torch's seeded generator."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.config import SamplingConfig
from engine.sampling.processors import processors_of


class TorchSampler:
    """See Sampler. Ids equal those of the library's `generate` with the same settings and seed."""

    def __init__(self, config: SamplingConfig) -> None:
        self._is_greedy = not config.temperature
        self._asks_context = (config.repetition_penalty or 1.0) != 1.0
        self._process = processors_of(config)
        self._generator = torch.Generator()
        if config.seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(config.seed)

    def draw(self, logits: torch.Tensor, context: Sequence[int]) -> int:
        """See Sampler."""
        ids = torch.tensor([list(context) if self._asks_context else []], dtype=torch.long)
        scores = self._process(ids, logits.to(torch.float32, copy=True).unsqueeze(0))
        if self._is_greedy:
            return int(scores.argmax())
        return int(torch.multinomial(scores.softmax(dim=-1), 1, generator=self._generator))
