"""A short form is used only where it chooses what the router chooses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from engine.lookahead.ranking import find_ranking, short_norm

HIDDEN, EXPERTS, TOP_K = 16, 8, 2


class Router(nn.Module):
    """Ranks by `score(weight @ hidden + inner) + outer`, within the best of two groups when told to."""

    def __init__(self, score: Any, inner: bool, outer: bool, is_grouped: bool = False) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.weight = nn.Parameter(torch.randn(EXPERTS, HIDDEN) * 0.5)
        self.score, self.is_grouped = score, is_grouped
        self.inner = nn.Parameter(torch.randn(EXPERTS)) if inner else None
        self.register_buffer("outer", torch.randn(EXPERTS) * 0.2 if outer else None)

    def forward(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        logits = nn.functional.linear(hidden, self.weight, self.inner)
        ranked = self.score(logits) + (self.outer if self.outer is not None else 0)
        if self.is_grouped:
            groups = ranked.view(-1, 2, EXPERTS // 2)
            best = groups.amax(-1).argmax(-1)
            keep = nn.functional.one_hot(best, 2).repeat_interleave(EXPERTS // 2, dim=-1).bool()
            ranked = ranked.masked_fill(~keep, -torch.inf)
        values, chosen = ranked.topk(TOP_K)
        return logits, values, chosen


SCORES = [lambda x: x, torch.sigmoid, lambda x: x.softmax(-1), lambda x: nn.functional.softplus(x).sqrt()]


@pytest.mark.parametrize("score", SCORES, ids=["logits", "sigmoid", "softmax", "sqrtsoftplus"])
@pytest.mark.parametrize(("inner", "outer"), [(False, False), (True, False), (False, True), (True, True)])
def test_the_short_form_is_found_and_right(score: Any, inner: bool, outer: bool) -> None:
    router = Router(score, inner, outer)
    with torch.inference_mode():
        ranking = find_ranking(router, (), router, torch.randn(1, HIDDEN))
        assert ranking is not None
        for hidden in torch.randn(200, 1, HIDDEN, generator=torch.Generator().manual_seed(5)):
            assert ranking.best(ranking.scores(hidden)) == router(hidden)[2][0].tolist()


def test_a_router_of_another_kind_is_left_alone() -> None:
    with torch.inference_mode():
        for router in (Router(SCORES[1], False, True, is_grouped=True), Router(lambda x: -x, False, False)):
            assert find_ranking(router, (), router, torch.randn(1, HIDDEN)) is None
        assert find_ranking(nn.Linear(HIDDEN + 1, EXPERTS), (), nn.Identity(), torch.randn(1, HIDDEN)) is None
        assert find_ranking(nn.Identity(), (), nn.Identity(), torch.randn(1, HIDDEN)) is None


class PlusOne(nn.RMSNorm):
    """Weights stored as their distance from one."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return nn.functional.rms_norm(hidden, self.normalized_shape, self.weight + 1, self.eps)


def test_the_fused_norm_only_where_it_gives_the_same() -> None:
    sample = torch.randn(4, HIDDEN)
    plain, odd, centred = nn.RMSNorm(HIDDEN, eps=1e-6), PlusOne(HIDDEN, eps=1e-6), nn.LayerNorm(HIDDEN)
    with torch.inference_mode():
        assert short_norm(plain, sample) != plain.forward
        for norm in (plain, odd, centred):
            torch.testing.assert_close(short_norm(norm, sample)(sample), norm(sample))
        assert short_norm(odd, sample) == odd.forward
        assert short_norm(centred, sample) == centred.forward
