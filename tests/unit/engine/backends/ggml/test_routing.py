"""Routing: what the definitions of routers say, on logits whose choice is known."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.ggml.compute import Compute, Scratch
from engine.backends.ggml.graph import GraphBuilder
from engine.backends.ggml.graph_parts import GraphParts
from engine.backends.ggml.library import load_library
from engine.backends.ggml.memory import Memory
from engine.backends.ggml.model_spec import SIGMOID, SOFTMAX, SOFTMAX_OF_CHOSEN, RouterSpec
from engine.backends.ggml.router_graph import RouterGraph
from engine.backends.ggml.routing import LogitsTap, Routing
from engine.backends.ggml.tensor_types import F32

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
@pytest.mark.parametrize("scale", [1.0, 1.5])
def test_a_graph_weighs_a_token_as_a_prompt_is_weighed(scoring: str, normalises: bool, scale: float) -> None:
    spec = RouterSpec(scoring, normalises, scale)
    routing = Routing(spec, 3, None)
    for logits in (LOGITS, LOGITS * 1e4):  # no exponential overflows
        experts, weights = routing.choose(logits)
        chosen, weighed = in_graph(spec, logits[0], 3)
        assert chosen == experts[0].tolist()
        assert np.allclose(weighed, weights[0], rtol=1e-5)


def in_graph(spec: RouterSpec, logits: np.ndarray, top_k: int) -> tuple[list[int], np.ndarray]:
    ggml = load_library()
    compute, scratch, builder = Compute(ggml), Scratch(ggml), GraphBuilder(ggml, 32)
    memory = Memory(4096)
    logits_at, raw = memory.take(logits.nbytes)
    raw.view(np.float32)[:] = logits
    order_at, order = memory.take(logits.nbytes)
    weights_at, weights = memory.take(4 * top_k)
    router = RouterGraph(spec, top_k, GraphParts(lambda weight: (0, 0), 0.0))
    given = builder.new_at(logits_at, F32, len(logits), 1)
    ordered = builder.placed(builder.descending(given), order_at)
    graph = builder.graph(ordered, router.weights(builder, given, ordered, weights_at))
    scratch.allocate(graph)
    compute.run(graph)
    builder.close()
    return order.view(np.int32)[:top_k].tolist(), weights.view(np.float32)[:top_k].copy()
