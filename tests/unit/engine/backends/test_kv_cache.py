"""Preallocated cache layers against the library's own: the same logits over any chunk schedule, and no reallocation."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, DynamicCache
from transformers.cache_utils import DynamicSlidingWindowLayer

from engine.backends.offloaded_model import OffloadedModel
from engine.backends.transformers.kv_cache import KvCache, PreallocatedLayer, PreallocatedSlidingLayer
from tests.architectures.tiny import VOCAB
from tests.unit.engine.commands.tiny_bench import CHUNK_TOK, config_of
from tests.unit.engine.conftest import TinyFolder

CONTEXT_TOK = 128
SLIDING = ("gpt_oss", "cohere2_moe")


@contextlib.contextmanager
def opened(folder: Path, **options: Any) -> Iterator[OffloadedModel]:
    engine = OffloadedModel(
        config_of(folder, context_tok=CONTEXT_TOK, **options), folder, lambda progress: None, lambda: False
    )
    try:
        yield engine
    finally:
        engine.close()


def plain_model(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()


def ids_of(seed: int, num_tok: int) -> list[int]:
    return random.Random(seed).choices(range(3, VOCAB), k=num_tok)


def schedule_of(seed: int, num_tok: int) -> list[int]:
    """Random chunk lengths, single tokens often among them, that add up to `num_tok`."""
    draw, lengths = random.Random(seed), []
    while num_tok:
        lengths.append(min(draw.choice([1, 1, 2, 3, draw.randint(1, CHUNK_TOK), CHUNK_TOK]), num_tok))
        num_tok -= lengths[-1]
    return lengths


def run(model: Any, cache: Any, ids: list[int], lengths: list[int]) -> list[torch.Tensor]:
    """The last logits after every chunk."""
    logits, start = [], 0
    with torch.inference_mode():
        for length in lengths:
            chunk = torch.tensor([ids[start : start + length]])
            output = model(input_ids=chunk, cache=cache, use_cache=True, logits_to_keep=1)
            logits.append(output.logits[0, -1].clone())
            start += length
    return logits


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["qwen3_moe", "deepseek_v3", *SLIDING])
def test_the_same_logits_as_the_librarys_cache(tiny_folder: TinyFolder, name: str, dtype: torch.dtype) -> None:
    model = plain_model(tiny_folder(name, dtype))
    ours = KvCache(model, CONTEXT_TOK, CHUNK_TOK, uses_library_cache=False)
    kinds = {type(layer) for layer in ours.cache.layers}
    assert kinds <= {PreallocatedLayer, PreallocatedSlidingLayer}
    assert (PreallocatedSlidingLayer in kinds) == (name in SLIDING)
    for seed in range(3):
        ids, lengths = ids_of(seed, 100), schedule_of(seed, 100)
        ours.reset()
        expected = run(model, DynamicCache(config=model.config), ids, lengths)
        for number, (one, other) in enumerate(zip(run(model, ours.cache, ids, lengths), expected, strict=True)):
            assert torch.equal(one, other), f"seed {seed}, after {sum(lengths[: number + 1])} tokens of {lengths}"


@pytest.mark.parametrize("name", ["qwen3_moe", *SLIDING])
def test_cropped_and_continued_is_as_if_computed_anew(tiny_folder: TinyFolder, name: str) -> None:
    model = plain_model(tiny_folder(name))
    ours = KvCache(model, CONTEXT_TOK, CHUNK_TOK, uses_library_cache=False)
    for seed in range(8):
        draw, ids = random.Random(seed), ids_of(seed, 40)
        lengths = schedule_of(seed, 40)
        ours.reset()
        run(model, ours.cache, ids, lengths)
        ours.tokens[:] = ids
        keep = draw.randint(1, 39)
        was_kept = ours.keep_prefix(keep)
        assert ours.tokens == (ids[:keep] if was_kept else [])
        assert was_kept or name in SLIDING
        fresh = DynamicCache(config=model.config)
        if was_kept:
            run(model, fresh, ids, _until(lengths, keep))
        new = ids_of(seed + 100, 20)
        for one, other in zip(run(model, ours.cache, new, [20]), run(model, fresh, new, [20]), strict=True):
            torch.testing.assert_close(one, other)


def _until(lengths: list[int], num_tok: int) -> list[int]:
    """The beginning of a schedule, cut at `num_tok`."""
    kept: list[int] = []
    for length in lengths:
        kept.append(min(length, num_tok - sum(kept)))
    return [length for length in kept if length]


# -- sliding layers alone ----------------------------------------------------------------------------------------------


def states(first: int, count: int) -> torch.Tensor:
    """[1, 2, count, 4]: every token's states are its number."""
    return torch.arange(first, first + count, dtype=torch.float32).view(1, 1, count, 1).expand(1, 2, count, 4)


@given(
    window=st.integers(2, 9),
    steps=st.lists(st.tuples(st.integers(1, 8), st.integers(0, 12)), min_size=1, max_size=30),
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_sliding_layer_shows_what_the_librarys_does(window: int, steps: list[tuple[int, int]]) -> None:
    """Appended in chunks of up to 8, cropped by up to 12 where that can be: always the same view and mask."""
    ours = PreallocatedSlidingLayer(window, 2 * window + 8)
    held = 0
    for count, crop in steps:
        library = DynamicSlidingWindowLayer(sliding_window=window)
        if held:
            library.update(states(0, held), states(0, held))
        assert ours.get_mask_sizes(count) == library.get_mask_sizes(count)
        keys, values = ours.update(states(held, count), -states(held, count))
        expected, _ = library.update(states(held, count), states(held, count))
        assert torch.equal(keys, expected)
        assert torch.equal(values, -expected)
        held += count
        assert ours.get_seq_length() == library.get_seq_length() == held
        if crop and held > crop and ours.can_crop_to(held - crop):
            held -= crop
            ours.crop_to(held)


def test_a_sliding_layer_refuses_to_crop_beyond_what_it_holds() -> None:
    layer = PreallocatedSlidingLayer(window_tok=4, capacity_tok=2 * 4 + 8)
    for first in range(0, 32, 8):
        layer.update(states(first, 8), states(first, 8))
    assert layer.length_tok == 32
    assert not layer.can_crop_to(33)
    first_held = layer.length_tok - layer.held_tok
    allowed = [length for length in range(33) if layer.can_crop_to(length)]
    assert allowed == list(range(first_held + 3, 33))
    layer.crop_to(allowed[0])
    keys, _ = layer.update(states(allowed[0], 1), states(allowed[0], 1))
    assert keys[0, 0, :, 0].tolist() == list(range(allowed[0] - 3, allowed[0] + 1))


def test_a_full_layer_crops_to_anything_it_holds() -> None:
    layer = PreallocatedLayer(16)
    layer.update(states(0, 10), states(0, 10))
    assert [length for length in range(17) if layer.can_crop_to(length)] == list(range(11))


# -- memory ------------------------------------------------------------------------------------------------------------


def tensors_of(engine: OffloadedModel) -> list[torch.Tensor]:
    return [tensor for layer in engine.decoder.cache.cache.layers for tensor in (layer.keys, layer.values)]


@pytest.mark.parametrize("name", ["qwen3_moe", "deepseek_v3", "glm4_moe", *SLIDING])
def test_the_plan_is_what_is_allocated_and_nothing_moves(tiny_folder: TinyFolder, name: str) -> None:
    with opened(tiny_folder(name)) as engine:
        tensors = tensors_of(engine)
        allocated = sum(tensor.untyped_storage().nbytes() for tensor in tensors)
        assert allocated == engine.budget.kv_bytes
        places = [tensor.data_ptr() for tensor in tensors]
        for seed in range(2):
            engine.greedy_ids(ids_of(seed, 90), 30)
            assert [tensor.data_ptr() for tensor in tensors_of(engine)] == places


@pytest.mark.parametrize("name", ["qwen3_next", "minimax", "deepseek_v4", "lfm2_moe", "jamba", "deepseek_v32"])
def test_what_the_library_grows_itself_stays_within_the_plan(tiny_folder: TinyFolder, name: str) -> None:
    with opened(tiny_folder(name)) as engine:
        engine.greedy_ids(ids_of(1, 90), 30)
        cache = engine.decoder.cache.cache
        held = sum(_bytes(value) for layer in cache.layers for value in vars(layer).values())
        assert 0 < held <= engine.budget.kv_bytes


def _bytes(value: object) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, dict):
        return sum(_bytes(item) for item in value.values())
    return sum(_bytes(item) for item in value) if isinstance(value, (list, tuple)) else 0


@pytest.mark.parametrize("name", ["qwen3_moe", "qwen3_next"])
def test_a_prefix_that_is_all_there_is_needs_no_crop(tiny_folder: TinyFolder, name: str) -> None:
    with opened(tiny_folder(name)) as engine:
        engine.greedy_ids(ids_of(1, 10), 4)
        kv = engine.decoder.cache
        assert kv.keep_prefix(len(kv.tokens))
        assert len(kv.tokens) == 13
        assert kv.keep_prefix(5) == (name == "qwen3_moe")
        assert len(kv.tokens) == (5 if name == "qwen3_moe" else 0)


def test_approximate_states_are_forgotten_with_the_tokens_they_belong_to(tiny_folder: TinyFolder) -> None:
    with opened(tiny_folder("qwen3_moe")) as engine:
        kv = engine.decoder.cache
        engine.greedy_ids(ids_of(1, 10), 4)
        assert not kv.is_approximate
        kv.note_approximate(11)
        kv.note_approximate(12)
        assert kv.is_approximate
        assert kv.num_exact_tok == 11
        kv.keep_prefix(12)
        assert kv.is_approximate
        kv.keep_prefix(11)
        assert not kv.is_approximate
        kv.note_approximate(5)
        kv.reset()
        assert not kv.is_approximate
