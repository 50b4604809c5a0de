"""Every claimed architecture, loaded without its experts and decoded through k + 1 slots a layer: equal to the
library."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.backends.offloaded_model import OffloadedModel
from engine.config import FULL_LAYER, PREFETCHERS, RING, EngineConfig
from engine.errors import UnsupportedModelError
from engine.lookahead.forms import Way
from offload.policies.eviction import HISTORY_POLICIES
from tests.architectures.prediction_ways import EXPECTED, require_ways
from tests.architectures.tiny import NUM_EXPERTS, SUPPORTED, TOP_K, UNSUPPORTED, VOCAB, save_checkpoint

PROMPT_TOK = (1, 7, 64, 600)
"""A token, less than a chunk, a chunk, ten of them."""
NUM_POSITIONS = 1024
NEW_TOK = 12
CHUNK_TOK = 64

COMBINATIONS = (
    *product(HISTORY_POLICIES, PREFETCHERS, (FULL_LAYER, RING)),
    ("activation", "activation", RING),
    ("not-picked", "whole-layer", FULL_LAYER),
    ("keep-none", "none", RING),
)
"""Every choice of policies that is exact: eviction, prefetch, prefill path."""


def policies_of(combination: tuple[str, str, str]) -> dict[str, Any]:
    """The configuration's fields. Two experts ahead, so that prefetches are wrong now and then."""
    return {**dict(zip(("eviction", "prefetch", "prefill"), combination, strict=True)), "prefetch_depth": 2}


def open_model(folder: Path, **options: Any) -> OffloadedModel:
    """The model offloaded, with k + 1 slots a layer and one thread unless told otherwise."""
    options.setdefault("residency", (TOP_K + 1) / NUM_EXPERTS)
    options.setdefault("compute_threads", 1)
    config = EngineConfig(model=str(folder), prefill_chunk_tok=CHUNK_TOK, **options)
    return OffloadedModel(config, folder, lambda progress: None, lambda: False)


def reference(folder: Path) -> Any:
    """The unmodified library's model, in memory of its own: in a mapped file the length of the header says where
    tensors begin, and with that which kernel multiplies them."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", experts_implementation="grouped_mm").eval()
    for value in model.parameters():
        value.data = value.data.clone()
    return model


def reference_greedy(
    model: Any, prompt: list[int], num_new_tok: int, chunk_tok: int = CHUNK_TOK
) -> tuple[list[int], torch.Tensor]:
    """Greedy ids of the unmodified model, and the logits [vocab] at the prompt's end, on the same chunk schedule."""
    ids: list[int] = []
    cache, first = None, None
    steps = [prompt[start : start + chunk_tok] for start in range(0, len(prompt), chunk_tok)]
    with torch.inference_mode():
        while len(ids) < num_new_tok:
            output = model(input_ids=torch.tensor([steps.pop(0)]), cache=cache, use_cache=True, logits_to_keep=1)
            cache, logits = output.cache, output.logits[0, -1]
            if not steps:
                first = logits.clone() if first is None else first
                ids.append(int(logits.argmax()))
                steps = [ids[-1:]]
    assert first is not None
    return ids, first


def prompt_of(num_tok: int) -> list[int]:
    generator = torch.Generator().manual_seed(num_tok)
    return torch.randint(3, VOCAB, (num_tok,), generator=generator).tolist()


Expected = dict[int, tuple[list[int], torch.Tensor]]
"""By prompt length, the library's ids and logits."""


def expected_of(plain: Any) -> Expected:
    """To be asked once the engine has chosen the number of threads: another number gives other bits."""
    return {num_tok: reference_greedy(plain, prompt_of(num_tok), NEW_TOK) for num_tok in PROMPT_TOK}


def require_equal(engine: OffloadedModel, expected: Expected) -> None:
    before = engine.cache.total_counters()
    for num_tok, (expected_ids, expected_logits) in expected.items():
        ids, logits = engine.greedy_ids(prompt_of(num_tok), NEW_TOK)
        assert torch.equal(logits, expected_logits), (
            f"{num_tok} tokens: off by {(logits - expected_logits).abs().max()}"
        )
        assert ids == expected_ids, f"{num_tok} tokens"
    engine.cache.check_integrity()
    counters = engine.cache.total_counters() - before
    num_chosen = (NEW_TOK - 1) * len(expected) * TOP_K * len(engine.layers)
    names_some_twice = "hash_moe" in getattr(engine.loaded.model.config, "mlp_layer_types", ())
    assert num_chosen / 2 < counters.routed < num_chosen if names_some_twice else counters.routed == num_chosen
    assert counters.misses + counters.late > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("name", SUPPORTED)
def test_equal_to_the_library(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """With other policies on every architecture, so that each combination is met; and its experts are predicted the way
    that is expected."""
    folder = save_checkpoint(tmp_path / name, name, dtype, num_positions=NUM_POSITIONS)
    plain = reference(folder)
    number = 2 * list(SUPPORTED).index(name) + (dtype is torch.bfloat16)
    engine = open_model(folder, **policies_of(COMBINATIONS[number % len(COMBINATIONS)]))
    try:
        model = engine.loaded.model
        assert not [key for key, value in (*model.named_parameters(), *model.named_buffers()) if value.is_meta]
        assert all(
            withheld.module._parameters[key] is None
            for withheld in engine.loaded.modules
            for key in withheld.parameters
        )
        require_ways(name, engine)
        require_equal(engine, expected_of(plain))
    finally:
        engine.close()


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("name", SUPPORTED)
def test_equal_to_the_library_with_every_combination_of_policies(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path / name, name, dtype, num_positions=NUM_POSITIONS)
    plain = reference(folder)
    engine = open_model(folder, compute_threads=None)
    try:
        expected = expected_of(plain)
        for combination in COMBINATIONS:
            engine.rebuild(replace(engine.config, **policies_of(combination)), engine.budget.groups)
            require_equal(engine, expected)
    finally:
        engine.close()


def test_all_but_two_architectures_use_the_short_form_everywhere() -> None:
    everywhere = [name for name, ways in EXPECTED.items() if set(ways) == {Way.SHORT}]
    assert len(everywhere) == len(SUPPORTED) - 2


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_refused_by_name_and_reason(name: str, tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path / name, name)
    with pytest.raises(UnsupportedModelError, match=rf"{name}.*(experts interface|dense model)"):
        open_model(folder)
