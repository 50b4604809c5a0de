"""A short form is used only where it chooses what the router chooses, on its own logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from engine.lookahead.norm_step import fold_norm, short_norm
from engine.lookahead.ranking import Returned, RouterRanking
from engine.lookahead.ranking_search import find_ranking
from tests.wide_routers import WIDE, make_router

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


def found(router: nn.Module) -> RouterRanking:
    with torch.inference_mode():
        ranking = find_ranking(router, (), router, torch.randn(1, HIDDEN)).ranking
    assert ranking is not None
    return ranking


@pytest.mark.parametrize("score", SCORES, ids=["logits", "sigmoid", "softmax", "sqrtsoftplus"])
@pytest.mark.parametrize(("inner", "outer"), [(False, False), (True, False), (False, True), (True, True)])
def test_the_short_form_is_found_and_right(score: Any, inner: bool, outer: bool) -> None:
    router = Router(score, inner, outer)
    ranking = found(router)
    assert ranking.near_tie_rate == 0
    with torch.inference_mode():
        for hidden in torch.randn(200, 1, HIDDEN, generator=torch.Generator().manual_seed(5)):
            assert ranking.best(ranking.scores(hidden)) == router(hidden)[2][0].tolist()


def test_groups_the_router_tells_of_are_part_of_the_short_form() -> None:
    router = Router(SCORES[1], False, True, is_grouped=True)
    router.num_group, router.topk_group = 2, 1  # type: ignore[assignment]
    ranking = found(router)
    assert ranking.groups is not None
    with torch.inference_mode():
        for hidden in torch.randn(200, 1, HIDDEN, generator=torch.Generator().manual_seed(5)):
            scores = ranking.scores(hidden)
            assert torch.isfinite(scores).all(), "what eviction goes by knows no groups"
            assert ranking.best(scores) == router(hidden)[2][0].tolist()
            assert int(torch.isfinite(ranking.eligible(scores)).sum()) == EXPERTS // 2


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
@pytest.mark.parametrize("name", WIDE)
def test_wide_routers_have_a_short_form(name: str, dtype: torch.dtype, seed: int) -> None:
    """With 64 and more experts two bf16 scores are nearly equal on some input, for every seed."""
    router = make_router(WIDE[name], dtype, seed)
    hidden_dim = WIDE[name].settings["hidden_size"]
    generator = torch.Generator().manual_seed(seed)
    with torch.inference_mode():
        sample = torch.randn(1, hidden_dim, generator=generator).to(dtype)
        ranking = find_ranking(router, (), router.forward, sample).ranking
        assert ranking is not None
        assert ranking.near_tie_rate <= (0.15 if dtype is torch.bfloat16 else 0.02)
        rows = torch.randn(64, hidden_dim, generator=generator).to(dtype)
        first, _, chosen = router(rows)
        assert ranking.returned is not Returned.OTHER
        scores = ranking.scores_of_output(first, rows)
        assert torch.isfinite(scores).all()
        kept = ranking.eligible(scores)
        assert torch.equal(kept.gather(1, chosen).sort().values, kept.topk(ranking.top_k)[0].sort().values)
        predicted = [set(ranking.best(ranking.scores(row.view(1, -1)))) for row in rows]
        hits = sum(len(best.intersection(row.tolist())) for best, row in zip(predicted, chosen, strict=True))
        assert hits >= 0.98 * chosen.numel()


def test_the_short_form_holds_no_copy_of_a_weight() -> None:
    router = make_router(WIDE["qwen3_moe 128/8"], torch.bfloat16, 0)
    with torch.inference_mode():
        ranking = find_ranking(router, (), router.forward, torch.randn(1, 2048).bfloat16()).ranking
    assert ranking is not None
    assert ranking.weight.data_ptr() == router.weight.data_ptr()  # type: ignore[operator]


def test_a_router_of_another_kind_is_left_alone_and_the_reason_named() -> None:
    sample = torch.randn(1, HIDDEN)
    with torch.inference_mode():
        for router in (Router(SCORES[1], False, True, is_grouped=True), Router(lambda x: -x, False, False)):
            assert find_ranking(router, (), router, sample) == (None, "it does not choose by a score of its logits")
        for other in (nn.Linear(HIDDEN + 1, EXPERTS), nn.Identity()):
            assert find_ranking(other, (), nn.Identity(), sample).reason.startswith("it has 0 matrices")


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


def test_a_norm_is_folded_whatever_its_weight_is_stored_as() -> None:
    ranking = found(Router(SCORES[2], True, True))
    with torch.inference_mode():
        for norm in (nn.RMSNorm(HIDDEN, eps=1e-6), PlusOne(HIDDEN, eps=1e-6)):
            norm.weight.copy_(torch.randn(HIDDEN) * 0.3)
            folded = fold_norm(norm, ranking, torch.randn(1, HIDDEN))
            assert folded is not None
            for hidden in torch.randn(20, 1, HIDDEN):
                torch.testing.assert_close(folded(hidden), ranking.product(norm(hidden)))
        assert fold_norm(nn.LayerNorm(HIDDEN), ranking, torch.randn(1, HIDDEN)) is None
        assert fold_norm(None, ranking, torch.randn(1, HIDDEN)) is None
