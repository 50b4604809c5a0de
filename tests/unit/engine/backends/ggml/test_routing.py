"""Routing: what the definitions of routers say, on logits whose choice is known."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.ggml.model_spec import SIGMOID, SOFTMAX, SOFTMAX_OF_CHOSEN, RouterSpec
from engine.backends.ggml.routing import LogitsTap, Routing

LOGITS = np.array([[3.0, 0.0, 0.0, 1.0, 2.0, 1.9, -1.0, 0.5]], np.float32)
GROUPED = {"num_groups": 4, "num_groups_used": 2}


def chosen(spec: RouterSpec, correction: list[float] | None = None, top_k: int = 2) -> tuple[list[int], np.ndarray]:
    bias = None if correction is None else np.array(correction, np.float32)
    experts, weights = Routing(spec, top_k, bias).choose(LOGITS)
    return experts[0].tolist(), weights[0]


def test_the_softmax_of_the_chosen_is_the_softmax_of_all_over_its_sum() -> None:
    of_chosen = chosen(RouterSpec(SOFTMAX_OF_CHOSEN, False))
    over_sum = chosen(RouterSpec(SOFTMAX, True))
    assert of_chosen[0] == over_sum[0] == [0, 4]
    assert np.allclose(of_chosen[1], over_sum[1])


def test_weights_are_scaled_last() -> None:
    _, weights = chosen(RouterSpec(SIGMOID, True, 2.5))
    assert float(weights.sum()) == pytest.approx(2.5)


def test_a_correction_decides_who_is_chosen_and_no_weight() -> None:
    experts, weights = chosen(RouterSpec(SIGMOID, False), [0, 0, 0, 0, 0, 0, 5, 0])
    assert experts == [6, 0]
    assert np.allclose(weights, 1 / (1 + np.exp([1.0, -3.0])))


@pytest.mark.parametrize(("best", "groups"), [(1, {0, 1, 4, 5}), (2, {2, 3, 4, 5})])
def test_only_experts_of_the_best_groups_are_chosen(best: int, groups: set[int]) -> None:
    """Groups are pairs here: by its best score {0, 1} is a good one, by the sum of both a bad one."""
    correction = [0.0, -2.0, 0, 0, 0, 0, 0, -2.0]
    spec = RouterSpec(SIGMOID, False, group_best=best, **GROUPED)
    routing = Routing(spec, 3, np.array(correction, np.float32))
    experts = routing.choose(LOGITS)[0][0].tolist()
    assert set(experts) <= groups
    assert routing.best(LOGITS) == experts
    tap = LogitsTap(routing)
    tap.logits = LOGITS
    selected, scores = tap.selection_scores(), tap.scores()
    assert selected is not None
    assert scores is not None
    assert set(np.flatnonzero(np.isfinite(selected)).tolist()) == groups
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("scoring", [SOFTMAX, SOFTMAX_OF_CHOSEN, SIGMOID])
@pytest.mark.parametrize("normalises", [False, True])
def test_a_token_is_weighed_without_arrays_as_a_prompt_is(scoring: str, normalises: bool) -> None:
    routing = Routing(RouterSpec(scoring, normalises, 1.5), 3, None)
    for logits in (LOGITS, LOGITS * 1e4):  # no exponential overflows
        experts, weights = routing.choose(logits)
        weighed = routing.weigh_token(logits[0].tolist(), experts[0].tolist())
        assert np.allclose(weighed, weights[0], rtol=1e-5)
