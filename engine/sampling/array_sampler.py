"""Drawing tokens from numpy logits, without torch and the model library: the library's rules, a generator of its own.

The rules are those of `processors`, in the same order, so that the same tokens can be drawn with the same
probabilities. The generator is numpy's PCG64: a seed gives the same tokens again, and other ones than torch's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.config import SamplingConfig

_NUM_LIKELIEST = 1024
_SEEDS = 1 << 64
_LEAST_TOP_P = 1e-6


class ArraySampler:
    """See Sampler; logits are float32 arrays."""

    def __init__(self, config: SamplingConfig) -> None:
        self._config = config
        self._generator = np.random.Generator(np.random.PCG64(None if config.seed is None else config.seed % _SEEDS))

    def draw(self, logits: np.ndarray, context: Sequence[int]) -> int:
        """See Sampler."""
        if not self._config.temperature:
            return int(self._penalised(logits, context).argmax())
        tokens, probabilities = self.chances(logits, context)
        mass = np.cumsum(probabilities)
        place = int(np.searchsorted(mass, self._generator.random() * mass[-1], side="right"))
        return int(tokens[min(place, len(tokens) - 1)])

    def chances(self, logits: np.ndarray, context: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """The tokens that can be drawn, and their probabilities, float64."""
        scores = self._penalised(logits, context) / np.float32(self._config.temperature or 1.0)
        tokens, kept = likeliest(scores, self._config)
        return tokens, _probabilities(kept)

    def _penalised(self, logits: np.ndarray, context: Sequence[int]) -> np.ndarray:
        """float32 [vocab], a copy."""
        scores, penalty = logits.astype(np.float32), self._config.repetition_penalty or 1.0
        if penalty != 1.0 and len(context):
            used = np.unique(np.asarray(context, np.int64))
            own = scores[used]
            scores[used] = np.where(own < 0, own * penalty, own / penalty)
        return scores


def likeliest(scores: np.ndarray, config: SamplingConfig) -> tuple[np.ndarray, np.ndarray]:
    """The tokens that top-k, top-p and min-p leave, and their scores float32 [vocab]. Ties with the last of the top k
    stay, as in the library."""
    tokens, kept = np.arange(len(scores)), scores
    if config.top_k and config.top_k < len(scores):
        least = np.partition(scores, len(scores) - config.top_k)[len(scores) - config.top_k]
        tokens = np.flatnonzero(scores >= least)
        kept = scores[tokens]
    if config.top_p is not None and config.top_p < 1.0:
        inside = _nucleus(kept, max(config.top_p, _LEAST_TOP_P))
        tokens, kept = tokens[inside], kept[inside]
    if config.min_p:
        probabilities = _probabilities(kept)
        inside = np.flatnonzero(probabilities >= config.min_p * probabilities.max())
        tokens, kept = tokens[inside], kept[inside]
    return tokens, kept


def _probabilities(scores: np.ndarray) -> np.ndarray:
    """float64 [tokens]"""
    raised = np.exp((scores - scores.max()).astype(np.float64))
    result: np.ndarray = raised / raised.sum()
    return result


def _nucleus(scores: np.ndarray, top_p: float) -> np.ndarray:
    """The places of the likeliest that together hold `top_p` of the probability; at least one. Sorts the likeliest
    alone where they hold it: a sort of the whole vocabulary takes milliseconds."""
    probabilities = _probabilities(scores)
    places = np.arange(len(scores))
    if len(scores) > _NUM_LIKELIEST:
        places = np.argpartition(-probabilities, _NUM_LIKELIEST)[:_NUM_LIKELIEST]
        if probabilities[places].sum() < top_p:
            places = np.arange(len(scores))
    order = places[np.argsort(-probabilities[places], kind="stable")]
    sorted_ = probabilities[order]
    return np.sort(order[np.cumsum(sorted_) - sorted_ < top_p])
