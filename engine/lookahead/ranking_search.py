"""Finds the short form of a router, and checks it against the router itself on random inputs.

A form is accepted when, applied to the router's own logits, it chooses what the router chooses on every input; experts
whose scores are equal within one rounding of the logits' dtype may stand for each other. What remains is that the short
form's product rounds otherwise than the router's: how often that decides is measured and kept (`near_tie_rate`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from engine.lookahead.ranking import ExpertGroups, Returned, RouterRanking
from engine.lookahead.selection_scores import SelectionScores

_NUM_PROBES = 64
_FLOAT32_SUM_ERROR = 1e-5
"""Of a product of thousands of values in float32, relative to its spread."""


def _identity(logits: torch.Tensor) -> torch.Tensor:
    return logits


def _softmax(logits: torch.Tensor) -> torch.Tensor:
    return logits.softmax(dim=-1)


def _sqrt_softplus(logits: torch.Tensor) -> torch.Tensor:
    return F.softplus(logits).sqrt()


_SCORES = (_identity, torch.sigmoid, _softmax, _sqrt_softplus)


class Found(NamedTuple):
    """The short form, or the reason why there is none."""

    ranking: RouterRanking | None
    reason: str = ""


class _Answers(NamedTuple):
    """What the router said to the probes."""

    probes: torch.Tensor
    """[probes, hidden]"""
    first: torch.Tensor | None
    """Its first output, [probes, experts]; None where it has another shape."""
    chosen: torch.Tensor
    """[probes, k]"""
    ranked: torch.Tensor | None
    """What it handed to `topk`, float32 [probes, experts]."""


def find_ranking(
    router: nn.Module, extra: Sequence[Any], ask: Callable[[torch.Tensor], Any], sample: torch.Tensor
) -> Found:
    """The short form that agrees with `ask(hidden) -> (logits, weights, indices)` on inputs of the size of `sample`.

    `sample` [tokens, hidden] is what the router was fed on a warm-up, `extra` its other arguments. Raises what `ask`
    raises.
    """
    weights = [w for w in router.parameters() if w.dim() == 2 and w.shape[1] == sample.shape[-1]]
    if len(weights) != 1:
        return Found(None, f"it has {len(weights)} matrices over the hidden state, not one")
    weight = weights[0].detach()
    answers = _asked(ask, sample, len(weight))
    if len(weight) < answers.chosen.shape[-1]:
        return Found(None, "it chooses more experts than its matrix has rows")
    agreeing = (form for form in _candidates(router, extra, weight, answers) if form is not None)
    ranking = next((form for form in agreeing if _is_what_was_ranked(form, answers)), None)
    if ranking is None:
        return Found(None, _why_not(weight, answers))
    if ranking.returned is Returned.OTHER and answers.first is not None:
        scores = ranking.scores(answers.probes)
        if _is_close(answers.first.float(), scores, _rounding(weight, answers.first)):
            ranking = replace(ranking, returned=Returned.SCORES)
    return Found(replace(ranking, near_tie_rate=_share_that_differs(ranking, answers)))


def _asked(ask: Callable[[torch.Tensor], Any], sample: torch.Tensor, num_experts: int) -> _Answers:
    scale = sample.float().std().clamp(min=1e-3)
    generator = torch.Generator().manual_seed(0)
    probes = (torch.randn(_NUM_PROBES, sample.shape[-1], generator=generator) * scale).to(sample.dtype)
    top_k = ask(probes[:1])[2].numel()
    with SelectionScores(num_experts, top_k) as watched:
        output = ask(probes)
    shape = (_NUM_PROBES, num_experts)
    first = output[0].reshape(shape) if output[0].numel() == _NUM_PROBES * num_experts else None
    ranked = watched.scores.reshape(shape).float() if watched.scores is not None else None
    return _Answers(probes, first, output[2].reshape(_NUM_PROBES, -1), ranked)


def _candidates(
    router: nn.Module, extra: Sequence[Any], weight: torch.Tensor, answers: _Answers
) -> Iterator[RouterRanking | None]:
    """Every score, each vector of the right length as a bias before and after it, every kind of groups; None for what
    does not agree."""
    values = [*router.parameters(), *router.buffers(), *extra]
    is_vector = [isinstance(v, torch.Tensor) and v.is_floating_point() and v.numel() == len(weight) for v in values]
    vectors = [v.detach().reshape(-1) for v, fits in zip(values, is_vector, strict=True) if fits]
    top_k = answers.chosen.shape[-1]
    for inner in (None, *vectors):
        product = RouterRanking(weight, inner, _identity, None, top_k).product(answers.probes)
        own, returned = product, Returned.OTHER
        if answers.first is not None and _is_close(answers.first.float(), product, _rounding(weight, answers.first)):
            own, returned = answers.first.float(), Returned.LOGITS
        eps = _rounding(weight, answers.first if returned is Returned.LOGITS else weight)
        for groups in (None, *_groups(router, len(weight))):
            for score in _SCORES:
                for outer in (None, *vectors):
                    form = RouterRanking(weight, inner, score, outer, top_k, groups, returned)
                    yield form if _agrees(form, own, answers.chosen, eps) else None


def _groups(router: nn.Module, num_experts: int) -> Iterator[ExpertGroups]:
    num_groups = getattr(router, "num_group", getattr(router, "n_group", None))
    num_kept = getattr(router, "topk_group", None)
    if not isinstance(num_groups, int) or not isinstance(num_kept, int):
        return
    if num_groups < 2 or num_experts % num_groups or not 0 < num_kept <= num_groups:
        return
    yield ExpertGroups(num_groups, num_kept, is_sum_of_two=False)
    if num_experts // num_groups >= 2:
        yield ExpertGroups(num_groups, num_kept, is_sum_of_two=True)


def _agrees(form: RouterRanking, logits: torch.Tensor, chosen: torch.Tensor, eps: float) -> bool:
    """Whether the form chooses from the router's logits what the router chose, but for scores equal within `eps`."""
    ranked = form.eligible(form.scores_of_logits(logits))
    last = ranked.topk(form.top_k)[0][:, -1:]
    size = last.abs() if form.bias is None else last.abs() + form.bias.float().abs().max()
    is_chosen = torch.zeros_like(ranked, dtype=torch.bool).scatter_(1, chosen, True)
    is_left_out = (ranked > last + eps * size) & ~is_chosen
    is_too_low = (ranked < last - eps * size) & is_chosen
    return bool((is_chosen.sum(dim=-1) == form.top_k).all()) and not bool((is_left_out | is_too_low).any())


def _is_what_was_ranked(form: RouterRanking, answers: _Answers) -> bool:
    """Among forms of the same order (a softmax keeps the order of logits), the one in the router's own measure.

    Any, where the router ranks without `topk`.
    """
    if answers.ranked is None:
        return True
    source = answers.first if form.returned is Returned.LOGITS else None
    scores = form.scores_of_logits(source.float()) if source is not None else form.scores(answers.probes)
    is_open = torch.isfinite(form.eligible(scores))
    return _is_close(answers.ranked[is_open], scores[is_open], _rounding(form.weight, answers.first))


def _share_that_differs(form: RouterRanking, answers: _Answers) -> float:
    chosen = form.eligible(form.scores(answers.probes)).topk(form.top_k)[1]
    is_same = (chosen.sort(dim=-1).values == answers.chosen.sort(dim=-1).values).all(dim=-1)
    return 1.0 - float(is_same.float().mean())


def _why_not(weight: torch.Tensor, answers: _Answers) -> str:
    product = F.linear(answers.probes.to(weight.dtype), weight).float()
    has_logits = answers.first is not None and _is_close(
        answers.first.float(), product, _rounding(weight, answers.first)
    )
    if not has_logits:
        return "it changes its input before its matrix, or returns no logits"
    return "it does not choose by a score of its logits"


def _rounding(weight: torch.Tensor, output: torch.Tensor | None) -> float:
    """Relative size of two roundings in the coarser of the two dtypes."""
    dtypes = [value.dtype for value in (weight, output) if value is not None]
    return 2 * max(torch.finfo(dtype).eps for dtype in dtypes)


def _is_close(found: torch.Tensor, expected: torch.Tensor, eps: float) -> bool:
    if found.shape != expected.shape or not found.numel():
        return False
    eps = max(eps, _FLOAT32_SUM_ERROR)
    return bool(((found - expected).abs() <= eps * (expected.abs() + expected.std())).all())
