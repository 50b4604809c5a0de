"""How the next token is drawn: the library's logits processors, a seeded generator, greedy when temperature is 0."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import torch
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from engine.config import SamplingConfig

_NUM_LIKELIEST = 1024


def with_model_defaults(asked: SamplingConfig, model_default: GenerationConfig) -> SamplingConfig:
    """Fills what the user left open from the model's generation_config; a model that does not sample is greedy."""

    def default(name: str) -> Any:
        return getattr(model_default, name, None)

    def pick(name: str) -> Any:
        value = getattr(asked, name)
        return value if value is not None else default(name)

    temperature = asked.temperature
    if temperature is None:
        temperature = (default("temperature") or 1.0) if default("do_sample") else 0.0
    return replace(
        asked,
        temperature=temperature,
        top_p=pick("top_p"),
        top_k=pick("top_k"),
        min_p=pick("min_p"),
        repetition_penalty=pick("repetition_penalty"),
    )


class NucleusWarper(LogitsProcessor):
    """The library's top-p without its sort of the whole vocabulary, which takes milliseconds a token.

    Where the likeliest `_NUM_LIKELIEST` tokens hold the nucleus it is found among them; else the library is asked.
    """

    def __init__(self, top_p: float) -> None:
        self._top_p, self._library = top_p, TopPLogitsWarper(top_p=top_p)

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """`scores` [1, vocab] with -inf outside of the nucleus."""
        values, indices = scores.topk(min(_NUM_LIKELIEST, scores.shape[-1]))
        probabilities = (values - scores.logsumexp(dim=-1, keepdim=True)).exp()
        mass = probabilities.cumsum(dim=-1)
        if mass[0, -1] < self._top_p:
            return cast(torch.FloatTensor, self._library(input_ids, scores))
        kept = mass - probabilities < self._top_p
        warped = torch.full_like(scores, -torch.inf).scatter_(1, indices[kept][None], values[kept][None])
        return cast(torch.FloatTensor, warped)


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
