"""The distance of two predictions of the next token."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.arrays import Array


def float32_of(logits: Array) -> np.ndarray:
    """Logits of any back end as float32 [vocab], in memory of their own."""
    values: Any = logits.float().numpy() if hasattr(logits, "float") else logits
    return np.array(values, np.float32)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """float64 [vocab]"""
    shifted = logits.astype(np.float64) - logits.max()
    result: np.ndarray = shifted - np.log(np.exp(shifted).sum())
    return result


def kl(reference: np.ndarray, other: np.ndarray) -> float:
    """Of two rows of log-probabilities [vocab], in nats: the mean of their difference under the first."""
    return float((np.exp(reference) * (reference - other)).sum())
