"""A feeding norm in few operations, where it is an RMS norm."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

from engine.lookahead.ranking import RouterRanking


class _RmsParts(NamedTuple):
    weight: torch.Tensor
    eps: float


def _rms_parts(norm: nn.Module | None) -> _RmsParts | None:
    """What has the parts of an RMS norm; whether it is one, a sample must show."""
    weight = getattr(norm, "weight", None)
    eps = getattr(norm, "variance_epsilon", getattr(norm, "eps", None))
    if not isinstance(weight, torch.Tensor) or weight.dim() != 1 or not isinstance(eps, float):
        return None
    return _RmsParts(weight.detach(), eps)


def short_norm(norm: nn.Module, sample: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """torch's fused RMS norm where it gives what `norm` gives on `sample` to rounding; else `norm`'s own forward."""
    parts = _rms_parts(norm)
    if parts is None or parts.weight.dtype != sample.dtype:
        return norm.forward
    weight, eps = parts
    shape = weight.shape

    def fused(hidden: torch.Tensor) -> torch.Tensor:
        return torch.rms_norm(hidden, shape, weight, eps)

    try:
        is_same = torch.allclose(fused(sample).float(), norm.forward(sample).float(), rtol=0.02, atol=1e-3)
    except RuntimeError:
        is_same = False
    return fused if is_same else norm.forward


def fold_norm(
    norm: nn.Module | None, ranking: RouterRanking, sample: torch.Tensor
) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """`ranking.product(norm(hidden))` by a few operations on one row: half the time, and near enough for predictions
    (the norm's own rounding is left out). Holds no copy of a weight.

    hidden [..., hidden] of one token -> float32 [1, experts]. None where `norm` is no RMS norm on `sample`, its weight
    stored as it is or as its distance from one.
    """
    parts = _rms_parts(norm)
    if norm is None or parts is None:
        return None
    weight, eps = parts
    dim = weight.shape[0]
    token = sample.reshape(-1, sample.shape[-1])[-1:]
    expected = ranking.product(norm.forward(token))

    def plain(row: torch.Tensor) -> torch.Tensor:
        return row.mul(weight)

    def from_one(row: torch.Tensor) -> torch.Tensor:
        return torch.addcmul(row, row, weight)

    for gain in (plain, from_one):

        def logits(hidden: torch.Tensor, gain: Callable[[torch.Tensor], torch.Tensor] = gain) -> torch.Tensor:
            row = hidden.view(-1).float()
            scale = (dim / (float(row.dot(row)) + eps * dim)) ** 0.5
            return ranking.product(gain(row).view(1, -1), scale)

        if torch.allclose(logits(token), expected, rtol=0.05, atol=0.02):
            return logits
    return None
