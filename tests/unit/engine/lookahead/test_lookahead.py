"""Predictions are what the next layer's real router says of this layer's state, and they bring experts in time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.backends.offloaded_model import OffloadedModel
from engine.lookahead.lookahead import Lookahead
from tests.architectures.tiny import SUPPORTED, TOP_K
from tests.unit.engine.commands.tiny_bench import TinyBench, config_of, words
from tests.unit.engine.conftest import TinyFolder

HEAVY = {"gemma4_text", "cohere2_moe"}
"""Tiny in name only; their routers are of kinds that others have too."""
PREDICTED = ("qwen3_moe", "glm4_moe", "deepseek_v3", "gpt_oss", "mixtral", "qwen3_next", "olmoe")


@contextlib.contextmanager
def opened(folder: Path, **options: Any) -> Iterator[OffloadedModel]:
    engine = OffloadedModel(config_of(folder, **options), folder, lambda progress: None, lambda: False)
    try:
        yield engine
    finally:
        engine.close()


def lookahead_of(engine: OffloadedModel) -> Lookahead:
    assert isinstance(engine.lookahead, Lookahead)
    return engine.lookahead


def routers_choice(lookahead: Lookahead, layer: int, hidden: torch.Tensor) -> set[int]:
    """What the library's router of `layer` chooses, fed through its own norm."""
    feed = lookahead._feeds[layer]
    assert feed is not None
    rows = hidden.reshape(1, -1) if feed.input_dim == 2 else hidden.reshape(1, 1, -1)
    normed = feed.norm.forward(rows) if feed.norm is not None else rows
    return set(feed.router.forward(normed, *feed.extra_args, **feed.extra_kwargs)[2].reshape(-1).tolist())


@pytest.mark.parametrize("name", PREDICTED)
def test_the_prediction_is_the_next_router_on_this_state(tiny_folder: TinyFolder, name: str) -> None:
    with opened(tiny_folder(name)) as engine, torch.inference_mode():
        lookahead = lookahead_of(engine)
        following = range(1, len(engine.layers))
        assert all(lookahead.can_predict(layer - 1, layer) for layer in following)
        assert engine.num_predicted_layers == len(following)
        for seed in range(12):
            engine.greedy_ids([3 + seed, 50 + seed, 7], 2)
            for ahead in following:
                hidden = lookahead.inputs[ahead - 1]
                assert hidden is not None
                predictor = lookahead.predictors[ahead]
                assert predictor is not None
                predicted = predictor.choose(hidden)
                assert len(predicted) == TOP_K
                assert set(predicted) == routers_choice(lookahead, ahead, hidden)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in PREDICTED else pytest.mark.long)
        for name in SUPPORTED
        if name not in HEAVY
    ],
)
def test_the_short_form_agrees_with_the_router_on_fresh_inputs(tiny_folder: TinyFolder, name: str) -> None:
    with opened(tiny_folder(name)) as engine, torch.inference_mode():
        lookahead = lookahead_of(engine)
        generator = torch.Generator().manual_seed(99)
        for layer, predictor in enumerate(lookahead.predictors):
            sample = lookahead.inputs[layer]
            if predictor is None or sample is None:
                continue
            scale = sample.float().std().clamp(min=1e-3)
            agreed = 0
            for _ in range(100):
                hidden = (torch.randn(sample.shape, generator=generator) * scale).to(sample.dtype)
                agreed += set(predictor.choose(hidden)) == routers_choice(lookahead, layer, hidden)
            assert agreed >= 99, (layer, agreed)  # a tie in rounding may fall either way


@pytest.mark.parametrize("name", ["qwen3_moe", "gpt_oss", "glm4_moe"])
def test_prefetched_experts_are_hit(tiny_folder: TinyFolder, name: str) -> None:
    with TinyBench(tiny_folder(name), prefetch_depth=2) as bench:
        for number in range(4):
            bench.ask(words(number * 11, 5), max_new_tok=20)
        counters = bench.engine.cache.total_counters()
        assert counters.prefetch_issued > 0
        assert counters.prefetched_hits > 0
        assert counters.prefetch_useful == counters.prefetched_hits
    with TinyBench(tiny_folder(name), prefetch="none") as bench:
        bench.ask(words(1, 5), max_new_tok=20)
        counters = bench.engine.cache.total_counters()
        assert (counters.prefetch_issued, counters.prefetched_hits, counters.late) == (0, 0, 0)


def test_nothing_is_prefetched_where_all_is_resident(tiny_folder: TinyFolder) -> None:
    with TinyBench(tiny_folder("qwen3_moe"), residency=1.0) as bench:
        bench.ask(words(1, 5), max_new_tok=20)
        assert bench.engine.cache.total_counters().prefetch_issued == 0


def test_what_is_predicted_two_layers_ahead_is_learned_apart(tiny_folder: TinyFolder) -> None:
    with TinyBench(tiny_folder("qwen3_moe"), prefetch="layers-ahead", prefetch_depth=2) as bench:
        bench.ask(words(3, 5), max_new_tok=20)
        corrections = lookahead_of(bench.engine)._corrections
        assert [sorted(layers) for layers in corrections[:3]] == [[], [0], [0, 1]]
        assert bench.engine.cache.total_counters().prefetch_issued > 0
