"""How the next token is drawn: greedy when the temperature is 0, else by a seeded generator, after the library's rules.

Logits are a numpy array or a torch tensor, as the back end computes them; torch and the model library are imported only
for the latter. A seed gives the same tokens again on the same back end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.config import SamplingConfig
from engine.sampling.array_sampler import ArraySampler


class Sampler:
    """Draws tokens of one answer. Greedy ids equal those of the library's `generate` with the same settings."""

    def __init__(self, config: SamplingConfig) -> None:
        self._config = config
        self._takes_largest = not config.temperature and (config.repetition_penalty or 1.0) == 1.0
        self._drawer: Any = None

    def draw(self, logits: Any, context: Sequence[int]) -> int:
        """The next token from `logits` [vocab], after the ids in `context` (prompt and answer so far)."""
        if self._takes_largest:
            return int(logits.argmax())
        if self._drawer is None:
            self._drawer = self._make_drawer(logits)
        return int(self._drawer.draw(logits, context))

    def _make_drawer(self, logits: Any) -> Any:
        if isinstance(logits, np.ndarray):
            return ArraySampler(self._config)
        from engine.sampling.torch_sampler import TorchSampler

        return TorchSampler(self._config)
