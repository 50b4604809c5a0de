"""The library's logits processors for a sampling configuration, in the order in which the library applies them."""

from __future__ import annotations

from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
)

from engine.config import SamplingConfig
from engine.sampling.nucleus import NucleusWarper


def processors_of(config: SamplingConfig) -> LogitsProcessorList:
    """What changes the logits before a token is drawn. Greedy choice takes the repetition penalty alone."""
    processors = LogitsProcessorList()
    if config.repetition_penalty and config.repetition_penalty != 1.0:
        processors.append(RepetitionPenaltyLogitsProcessor(config.repetition_penalty))
    if not config.temperature:
        return processors
    if config.temperature != 1.0:
        processors.append(TemperatureLogitsWarper(config.temperature))
    if config.top_k:
        processors.append(TopKLogitsWarper(top_k=config.top_k))
    if config.top_p is not None and config.top_p < 1.0:
        processors.append(NucleusWarper(max(config.top_p, 1e-6)))
    if config.min_p:
        processors.append(MinPLogitsWarper(min_p=config.min_p))
    return processors
