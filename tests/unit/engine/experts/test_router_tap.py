"""What a tap says of its router, and that a router which raises leaves nothing behind."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack

from engine.experts.router_tap import RouterTap
from engine.experts.step_state import StepState
from engine.lookahead.ranking_search import find_ranking
from offload.geometry import LayerGeometry
from tests.wide_routers import WIDE, make_router

GEOMETRY = LayerGeometry(0, 8, 2, 64)


class Negated(nn.Module):
    """Ranks by what no short form describes; raises when told to."""

    is_broken = False

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 16, generator=torch.Generator().manual_seed(3)))

    def forward(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        logits = nn.functional.linear(hidden, self.weight)
        if self.is_broken:
            raise ValueError("broken")
        return (logits, *torch.topk(-logits, 2))


def approx_decode() -> StepState:
    return StepState(is_decode=True, is_approx=True)


def test_a_router_that_raises_leaves_no_function_mode_behind() -> None:
    router = Negated()
    tap = RouterTap(router, None, GEOMETRY, approx_decode())
    router.is_broken = True
    for _ in range(3):
        with pytest.raises(ValueError, match="broken"):
            router(torch.randn(1, 16))
        assert not _get_current_function_mode_stack()
    router.is_broken = False
    with torch.inference_mode():
        logits = router(torch.randn(1, 16))[0]
        scores = tap.selection_scores()
    assert scores is not None
    np.testing.assert_array_equal(scores, -logits[0].numpy())


def test_a_step_that_is_not_watched_has_no_scores_of_the_one_before() -> None:
    router, state = Negated(), approx_decode()
    tap = RouterTap(router, None, GEOMETRY, state)
    with torch.inference_mode():
        router(torch.randn(1, 16))
        state.is_approx = False
        logits = router(torch.randn(1, 16))[0]
        scores = tap.selection_scores()
    assert scores is not None
    np.testing.assert_array_equal(scores, logits[0].numpy())


class ModeSeen(nn.Module):
    """A router that notes which function modes it runs under."""

    def __init__(self, router: nn.Module) -> None:
        super().__init__()
        self.router, self.stacks = router, list[int]()

    def forward(self, hidden: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.stacks.append(len(_get_current_function_mode_stack()))
        output: tuple[torch.Tensor, ...] = self.router(hidden)
        return output


@pytest.mark.parametrize("name", WIDE)
def test_scores_are_what_the_router_ranks_by_without_a_function_mode(name: str) -> None:
    wide = WIDE[name]
    hidden_dim, top_k = wide.settings["hidden_size"], wide.settings["num_experts_per_tok"]
    geometry = LayerGeometry(0, wide.settings["num_experts"], top_k, 64)
    router = make_router(wide, torch.bfloat16, 1)
    with torch.inference_mode():
        ranking = find_ranking(router, (), router.forward, torch.randn(1, hidden_dim).bfloat16()).ranking
        assert ranking is not None
        seen = ModeSeen(router)
        tap = RouterTap(seen, ranking, geometry, approx_decode())
        for hidden in torch.randn(8, 1, hidden_dim, generator=torch.Generator().manual_seed(2)).bfloat16():
            chosen = seen(hidden)[2][0].tolist()
            scores, selected_by = tap.scores(), tap.selection_scores()
            assert scores is not None
            assert selected_by is not None
            assert np.isfinite(scores).all()
            last = np.sort(selected_by)[-top_k]
            assert (selected_by[chosen] >= last).all(), "up to equal scores, the best k are the chosen ones"
            if ranking.groups is None:
                np.testing.assert_array_equal(scores, selected_by)
    assert seen.stacks == [0] * 8
