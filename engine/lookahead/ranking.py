"""A shorter way to the same ranking: what a router chooses by, found out and checked against the router itself.

A library router computes groups, gathers, normalised weights and more; a prediction needs the ranking alone. Most
routers rank by `score(weight @ hidden) + bias`. Which score and which bias is found by trying on probe inputs; only a
form that picks the router's own k experts on every probe is used, and for any other router the router itself is
asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from engine.lookahead.selection_scores import SelectionScores

_NUM_PROBES = 48


def _identity(logits: torch.Tensor) -> torch.Tensor:
    return logits


def _softmax(logits: torch.Tensor) -> torch.Tensor:
    return logits.softmax(dim=-1)


def _sqrt_softplus(logits: torch.Tensor) -> torch.Tensor:
    return F.softplus(logits).sqrt()


_SCORES = (_identity, torch.sigmoid, _softmax, _sqrt_softplus)


class RouterRanking(NamedTuple):
    """`top_k` experts by `score(weight @ hidden + weight_bias) + bias`; fp32."""

    weight: torch.Tensor
    weight_bias: torch.Tensor | None
    score: Callable[[torch.Tensor], torch.Tensor]
    bias: torch.Tensor | None
    top_k: int
    returns_logits: bool
    """The router's first output is `weight @ hidden` as it is, not a score already."""

    def of_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """The scores by which the router ranks, from what it returned: float32 [tokens, experts] both."""
        return self._ranked_by(logits) if self.returns_logits else logits

    def scores(self, hidden: torch.Tensor) -> torch.Tensor:
        """What the router ranks by: `hidden` [tokens, hidden] -> float32 [tokens, experts]."""
        return self._ranked_by(F.linear(hidden.float(), self.weight, self.weight_bias))

    def of_row(self, row: torch.Tensor, scale: float) -> torch.Tensor:
        """As `scores`, of `scale` times a vector: float32 [hidden] -> [1, experts]."""
        logits = torch.mv(self.weight, row).mul_(scale)
        if self.weight_bias is not None:
            logits.add_(self.weight_bias)
        return self._ranked_by(logits).unsqueeze(0)

    def _ranked_by(self, logits: torch.Tensor) -> torch.Tensor:
        scores = self.score(logits)
        return scores if self.bias is None else scores + self.bias

    def best(self, scores: torch.Tensor) -> list[int]:
        """The experts of one token's scores [1, experts] that are chosen, best first."""
        experts: list[int] = scores.topk(self.top_k)[1][0].tolist()
        return experts


def find_ranking(
    router: nn.Module, extra: Sequence[Any], ask: Callable[[torch.Tensor], Any], sample: torch.Tensor
) -> RouterRanking | None:
    """The ranking that agrees with `ask(hidden) -> (logits, weights, indices)` on probes of the size of `sample`.

    `sample` [tokens, hidden] is what the router was fed on a warm-up, `extra` its other arguments. None: no short form
    agrees everywhere.
    """
    weight = getattr(router, "weight", None)
    if not isinstance(weight, torch.Tensor) or weight.dim() != 2 or weight.shape[1] != sample.shape[-1]:
        return None
    scale = sample.float().std().clamp(min=1e-3)
    generator = torch.Generator().manual_seed(0)
    probes = (torch.randn(_NUM_PROBES, sample.shape[-1], generator=generator) * scale).to(sample.dtype)
    top_k = ask(probes[:1])[2].numel()
    with SelectionScores(weight.shape[0], top_k) as watched:
        output = ask(probes)
    chosen = output[2].reshape(_NUM_PROBES, -1).sort(dim=-1).values
    values = [*router.parameters(False), *router.buffers(False), *extra]
    agreeing = [
        ranking
        for ranking in _candidates(values, weight, top_k)
        if torch.equal(ranking.scores(probes).topk(top_k)[1].sort(dim=-1).values, chosen)
    ]
    if not agreeing:
        return None
    ranking = next((r for r in agreeing if _is_what_was_ranked(r, probes, watched.scores)), agreeing[0])
    logits = F.linear(probes.float(), ranking.weight, ranking.weight_bias)
    returned = output[0].reshape(_NUM_PROBES, -1).float()
    return ranking._replace(returns_logits=_is_close(returned, logits))


def _is_what_was_ranked(ranking: RouterRanking, probes: torch.Tensor, ranked: torch.Tensor | None) -> bool:
    """Among forms of the same order (a softmax keeps the order of logits), the one in the router's own measure."""
    return ranked is not None and _is_close(ranked.reshape(len(probes), -1).float(), ranking.scores(probes))


def _is_close(returned: torch.Tensor, logits: torch.Tensor) -> bool:
    return returned.shape == logits.shape and torch.allclose(returned, logits, rtol=0.05, atol=0.02)


def _candidates(values: Sequence[Any], weight: torch.Tensor, top_k: int) -> Iterator[RouterRanking]:
    """Every score, with no bias and with each vector of the right length as one, before and after the score."""
    vectors = [v.detach().float() for v in values if isinstance(v, torch.Tensor) and v.shape == weight.shape[:1]]
    matrix = weight.detach().float()
    for inner in (None, *vectors):
        for score in _SCORES:
            for outer in (None, *vectors):
                yield RouterRanking(matrix, inner, score, outer, top_k, returns_logits=False)


def _rms_parts(norm: nn.Module | None) -> tuple[torch.Tensor, float] | None:
    """(weight, epsilon) of what has the parts of an RMS norm; whether it is one, a sample must show."""
    weight = getattr(norm, "weight", None)
    eps = getattr(norm, "variance_epsilon", getattr(norm, "eps", None))
    if not isinstance(weight, torch.Tensor) or weight.dim() != 1 or not isinstance(eps, float):
        return None
    return weight, eps


def short_norm(norm: nn.Module, sample: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """torch's fused RMS norm where it gives what `norm` gives on `sample` to rounding; else `norm`'s own forward."""
    parts = _rms_parts(norm)
    if parts is None:
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
    """`ranking.scores(norm(hidden))` by a few operations on one row: half the time, and for predictions near enough
    (the norm's rounding is left out).

    hidden [..., hidden] of one token -> float32 [1, experts]. None where `norm` is no plain RMS norm on `sample`.
    """
    parts = _rms_parts(norm)
    if norm is None or parts is None:
        return None
    weight, eps = parts
    gain, dim = weight.detach().float(), weight.shape[0]

    def scores(hidden: torch.Tensor) -> torch.Tensor:
        row = hidden.view(-1).float()
        scale = (dim / (float(row.dot(row)) + eps * dim)) ** 0.5
        return ranking.of_row(row.mul(gain), scale)

    token = sample.view(-1, sample.shape[-1])[-1:]
    expected = ranking.scores(norm.forward(token))
    return scores if torch.allclose(scores(token), expected, rtol=0.05, atol=0.02) else None
