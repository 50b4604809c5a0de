"""Drawn tokens are those of the library's `generate` with the same settings, greedy and seeded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, GenerationConfig, TopPLogitsWarper

from engine.backends.offloaded_model import OffloadedModel
from engine.config import SamplingConfig
from engine.errors import ConfigError
from engine.sampling.array_sampler import ArraySampler
from engine.sampling.nucleus import NucleusWarper
from engine.sampling.processors import processors_of
from engine.sampling.sampler import Sampler
from tests.unit.engine.commands.tiny_bench import config_of
from tests.unit.engine.conftest import TinyFolder

PROMPT = [5, 9, 77, 3, 5, 9]
NEW_TOK = 24
NO_END = -1
BOTH_KINDS = pytest.mark.parametrize(
    "make", [torch.tensor, lambda values: np.array(values, np.float32)], ids=["torch", "numpy"]
)


@pytest.fixture(scope="module")
def folder(tiny_folder: TinyFolder) -> Path:
    return tiny_folder("qwen3_moe")


@pytest.fixture(scope="module")
def plain(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype="auto", experts_implementation="grouped_mm").eval()


def generated(plain: Any, seed: int, **settings: Any) -> list[int]:
    """New ids of the library's own loop."""
    torch.manual_seed(seed)
    config = GenerationConfig(
        max_new_tokens=NEW_TOK, do_sample="temperature" in settings, eos_token_id=NO_END, pad_token_id=0, **settings
    )
    prompt = torch.tensor([PROMPT])
    ids = plain.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=config)
    return ids[0, len(PROMPT) :].tolist()


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[OffloadedModel]:
    model = OffloadedModel(config_of(folder), folder, lambda progress: None, lambda: False)
    yield model
    model.close()


def drawn(engine: OffloadedModel, **settings: Any) -> list[int]:
    """New ids of our loop."""
    engine.decoder.cache.reset()
    logits = engine.decoder.prefill(PROMPT, lambda done_tok: None)
    return list(engine.decoder.tokens(logits, Sampler(SamplingConfig(**settings)), NEW_TOK))


@pytest.mark.parametrize("settings", [{}, {"repetition_penalty": 1.3}, {"repetition_penalty": 0.8}], ids=str)
def test_greedy(engine: OffloadedModel, plain: Any, settings: dict[str, Any]) -> None:
    assert drawn(engine, temperature=0.0, **settings) == generated(plain, 0, **settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 1.0},
        {"temperature": 0.2},
        {"temperature": 1.5, "top_p": 0.8},
        {"temperature": 1.5, "top_p": 1.0},
        {"temperature": 1.5, "top_k": 5},
        {"temperature": 1.5, "top_k": 500},
        {"temperature": 1.5, "min_p": 0.1},
        {"temperature": 0.2, "top_p": 0.9, "repetition_penalty": 1.1},
        {"temperature": 3.0, "top_p": 0.95, "top_k": 20, "min_p": 0.02, "repetition_penalty": 1.2},
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", [0, 7])
def test_seeded(engine: OffloadedModel, plain: Any, settings: dict[str, Any], seed: int) -> None:
    # The library's own default, which a config can only leave by saying so.
    expected = generated(plain, seed, **({"top_k": 0} | settings))
    assert drawn(engine, seed=seed, **settings) == expected


def draw(make: Callable[[list[float]], Any], logits: list[float], num_draws: int = 200, **settings: Any) -> set[int]:
    """The tokens that come out of many draws."""
    sampler = Sampler(SamplingConfig(seed=1, **settings))
    return {sampler.draw(make(logits), [0]) for _ in range(num_draws)}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"temperature": 0.0}, {1}),
        ({"temperature": 0.0, "top_k": 3, "top_p": 0.5}, {1}),
        ({"temperature": 1.0}, {0, 1, 2, 3}),
        ({"temperature": 1.0, "top_k": 0}, {0, 1, 2, 3}),
        ({"temperature": 1.0, "top_p": 1.0}, {0, 1, 2, 3}),
        ({"temperature": 1.0, "min_p": 0.0}, {0, 1, 2, 3}),
        ({"temperature": 1.0, "top_k": 2}, {1, 2}),
        ({"temperature": 1.0, "top_k": 1}, {1}),
        ({"temperature": 1.0, "top_p": 0.0}, {1}),
        ({"temperature": 1.0, "min_p": 1.0}, {1}),
        ({"temperature": 0.001}, {1}),
    ],
    ids=str,
)
@BOTH_KINDS
def test_what_can_be_drawn(make: Callable[[list[float]], Any], settings: dict[str, Any], expected: set[int]) -> None:
    assert draw(make, [0.0, 1.0, 0.5, 0.1], **settings) == expected


def test_logits_are_left_as_they_are() -> None:
    logits = torch.tensor([0.0, 2.0, 1.0], dtype=torch.bfloat16)
    kept = logits.clone()
    Sampler(SamplingConfig(temperature=0.5, repetition_penalty=1.5)).draw(logits, [1])
    assert torch.equal(logits, kept)


@BOTH_KINDS
def test_a_seed_repeats_and_none_does_not(make: Callable[[list[float]], Any]) -> None:
    def ids(seed: int | None) -> list[int]:
        sampler = Sampler(SamplingConfig(temperature=1.0, seed=seed))
        return [sampler.draw(make([0.0] * 1000), [0]) for _ in range(20)]

    assert ids(3) == ids(3)
    assert ids(3) != ids(4)
    assert ids(-(2**63)) == ids(-(2**63))
    assert ids(None) != ids(None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"top_p": 1.1},
        {"top_k": -1},
        {"min_p": 2.0},
        {"repetition_penalty": 0.0},
        {"max_new_tok": 0},
    ],
    ids=str,
)
def test_values_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))) as caught:
        SamplingConfig(**wrong)
    assert caught.value.hint


@pytest.mark.parametrize("top_p", [1e-6, 0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("spread", [0.01, 1.0, 8.0])
@pytest.mark.parametrize("vocab", [7, 5000])
def test_the_nucleus_is_the_librarys(top_p: float, spread: float, vocab: int) -> None:
    scores = torch.randn(1, vocab, generator=torch.Generator().manual_seed(vocab)) * spread
    ids = torch.zeros(1, 1, dtype=torch.long)
    ours, theirs = NucleusWarper(top_p)(ids, scores.clone()), TopPLogitsWarper(top_p=top_p)(ids, scores.clone())
    assert torch.equal(ours.isinf(), theirs.isinf())
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0.7},
        {"temperature": 1.5, "top_k": 5},
        {"temperature": 1.5, "top_k": 50_000},
        {"temperature": 1.5, "top_p": 0.8},
        {"temperature": 8.0, "top_p": 0.999},
        {"temperature": 1.5, "min_p": 0.1},
        {"temperature": 3.0, "top_p": 0.95, "top_k": 20, "min_p": 0.02, "repetition_penalty": 1.2},
    ],
    ids=str,
)
@pytest.mark.parametrize("vocab", [7, 5000])
def test_arrays_are_drawn_from_by_the_librarys_rules(settings: dict[str, Any], vocab: int) -> None:
    """The same tokens can be drawn, with the same probabilities."""
    config = SamplingConfig(**settings)
    logits = torch.randn(vocab, generator=torch.Generator().manual_seed(vocab)) * 3
    context = [1, 3, 3]
    theirs = processors_of(config)(torch.tensor([context]), logits.clone()[None])[0].softmax(dim=-1).numpy()  # type: ignore[arg-type]
    sampler, ours = ArraySampler(config), np.zeros(vocab)
    tokens, probabilities = sampler.chances(logits.numpy(), context)
    ours[tokens] = probabilities
    assert (ours > 0).tolist() == (theirs > 0).tolist()
    assert np.abs(ours - theirs).max() < 1e-5


def test_draws_from_arrays_have_their_probabilities() -> None:
    sampler, logits = Sampler(SamplingConfig(temperature=1.0, seed=4)), np.log(np.array([0.5, 0.3, 0.2], np.float32))
    counts = np.bincount([sampler.draw(logits, []) for _ in range(4000)], minlength=3) / 4000
    assert np.abs(counts - [0.5, 0.3, 0.2]).max() < 0.04


def test_a_penalty_changes_the_greedy_choice_of_arrays_as_of_tensors() -> None:
    logits = [2.0, 1.9, -1.0, -0.9]
    for context, penalty in (([0], 1.5), ([2, 3], 0.5), ([0, 1], 4.0)):
        config = SamplingConfig(temperature=0.0, repetition_penalty=penalty)
        drawn = {Sampler(config).draw(make(logits), context) for make in (torch.tensor, np.array)}
        assert len(drawn) == 1
