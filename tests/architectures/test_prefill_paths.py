"""Prefill's ways to get absent experts: exact, whatever the way, and the decode set stays as it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engine.backends.offloaded_model import OffloadedModel
from engine.config import FULL_LAYER, RING
from engine.experts.prefill import FULL_LAYER as STAGED
from engine.experts.prefill import RING as STREAMED
from engine.experts.prefill import SELECTIVE
from offload.errors import WaitCancelled
from tests.architectures.test_matrix import (
    NEW_TOK,
    NUM_POSITIONS,
    open_model,
    prompt_of,
    reference,
    reference_greedy,
)
from tests.architectures.tiny import save_checkpoint

LAYOUTS = ("qwen3_moe", "gpt_oss", "deepseek_v3", "minimax", "nemotron_h")
"""Gated, interleaved and biased, grouped routing after a dense layer, a cache of its own, ungated."""


def residents(engine: OffloadedModel) -> list[bytes]:
    """Once the last answer's prefetches have landed."""
    for layer, shape in enumerate(engine.loaded.plan.geometry.layers):
        for expert in range(shape.num_experts):
            if (copy := engine.cache.copy_of(layer, expert)) is not None:
                copy.wait()
        engine.cache.settle(layer)
    return [engine.cache.residency_codes(layer) for layer in range(len(engine.layers))]


@pytest.mark.parametrize("path", [FULL_LAYER, RING])
@pytest.mark.parametrize("name", LAYOUTS)
def test_exact_and_the_decode_set_is_left_alone(name: str, path: str, tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path / name, name, torch.bfloat16, num_positions=NUM_POSITIONS)
    plain = reference(folder)
    engine = open_model(folder, residency=0.5, prefill=path)
    try:
        for num_tok in (7, 64, 1, 600):
            expected_ids, expected_logits = reference_greedy(plain, prompt_of(num_tok), NEW_TOK)
            before = residents(engine)
            is_full = not any(engine.cache.num_empty_slots(layer) for layer in range(len(engine.layers)))
            engine.decoder.cache.reset()
            engine.decoder.prefill(prompt_of(num_tok), lambda done_tok: None)
            if is_full:
                assert residents(engine) == before
            ids, logits = engine.greedy_ids(prompt_of(num_tok), NEW_TOK)
            assert torch.equal(logits, expected_logits)
            assert ids == expected_ids
        engine.cache.check_integrity()
    finally:
        engine.close()


@pytest.fixture
def warm_engine(tmp_path: Path) -> Iterator[OffloadedModel]:
    """qwen3_moe with four of eight experts in every decode set, and layers staged in prefill."""
    engine = open_model(save_checkpoint(tmp_path / "m", "qwen3_moe", torch.bfloat16), residency=0.5, prefill=FULL_LAYER)
    for layer in range(len(engine.layers)):
        for copy in engine.cache.warm(layer, [0, 2, 4, 6]):
            copy.wait()
        engine.cache.settle(layer)
    yield engine
    engine.close()


def test_a_long_prompt_stages_layers_and_changes_nothing(warm_engine: OffloadedModel) -> None:
    before = residents(warm_engine)
    warm_engine.decoder.prefill(prompt_of(40), lambda done_tok: None)
    assert residents(warm_engine) == before
    assert warm_engine.prefill.served == {STAGED: len(warm_engine.layers)}
    loads = warm_engine.cache.total_counters().prefill_loads
    assert loads == 4 * 2 * len(warm_engine.layers)  # the warm start, and every layer's absent half


def test_a_prompt_below_the_switch_fetches_what_it_routes_to(warm_engine: OffloadedModel) -> None:
    warm_engine.decoder.prefill(prompt_of(1), lambda done_tok: None)
    assert warm_engine.prefill.served == {SELECTIVE: len(warm_engine.layers)}


def test_stopped_between_layers_nothing_stays_staged(warm_engine: OffloadedModel) -> None:
    def stop(layer: int) -> None:
        raise WaitCancelled("Stopped.")

    warm_engine.state.after_layer = stop
    with pytest.raises(WaitCancelled):
        warm_engine.decoder.prefill(prompt_of(40), lambda done_tok: None)
    warm_engine.state.after_layer = lambda layer: None
    ids, _ = warm_engine.greedy_ids(prompt_of(40), NEW_TOK)
    again, _ = warm_engine.greedy_ids(prompt_of(40), NEW_TOK)
    assert ids == again
    warm_engine.cache.check_integrity()


def test_too_few_slots_for_two_layers_stream_through_the_ring(tmp_path: Path) -> None:
    engine = open_model(save_checkpoint(tmp_path / "m", "qwen3_moe"))
    try:
        assert not engine.budget.has_layer_staging
        engine.decoder.prefill(prompt_of(40), lambda done_tok: None)
        assert set(engine.prefill.served) == {STREAMED}
    finally:
        engine.close()
