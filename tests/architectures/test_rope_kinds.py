"""Every kind of rotary scaling of transformers: planned, loaded, and equal to the library below and beyond the length
at which the kind changes its frequencies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from tests.architectures.test_matrix import open_model, prompt_of, reference, reference_greedy
from tests.architectures.tiny import save_checkpoint

ORIGINAL_TOK, CONTEXT_TOK, NEW_TOK = 96, 512, 6
HEAD_DIM = 16
KINDS: dict[str, dict[str, Any]] = {
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": ORIGINAL_TOK},
    "longrope": {
        "factor": 4.0,
        "original_max_position_embeddings": ORIGINAL_TOK,
        "short_factor": [1.0] * (HEAD_DIM // 2),
        "long_factor": [2.0] * (HEAD_DIM // 2),
    },
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": ORIGINAL_TOK,
    },
}
MODELS = ["qwen3_moe", "phimoe", "cohere2_moe"]
"""Plain attention, one with a rotary embedding of its own, one with sliding windows."""
UNTESTED = {"default", "proportional"}
"""The first is what the matrix runs; the second is gemma4's, in the matrix too."""


def test_all_kinds_of_the_library_are_here() -> None:
    assert {*KINDS, *UNTESTED} >= set(ROPE_INIT_FUNCTIONS)


PHIMOE = {"short_mscale": 1.0, "long_mscale": 1.25, "original_max_position_embeddings": ORIGINAL_TOK}
"""What its rotary embedding looks up, whatever the kind."""


def save_with(folder: Path, name: str, kind: str) -> Path:
    save_checkpoint(folder, name, num_positions=ORIGINAL_TOK if kind == "dynamic" else CONTEXT_TOK)
    config = AutoConfig.from_pretrained(folder)
    config.rope_parameters = {"rope_theta": 10000.0, "rope_type": kind, **KINDS[kind]}
    if name == "phimoe":
        config.rope_parameters |= PHIMOE
    config.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_equal_to_the_library(name: str, kind: str, tmp_path: Path) -> None:
    """A long prompt, then a short one: beyond the length at which the frequencies change, and below it again."""
    folder = save_with(tmp_path / "model", name, kind)
    longest = ORIGINAL_TOK - NEW_TOK if kind == "dynamic" else 300
    engine, plain = open_model(folder), reference(folder)
    try:
        for num_tok in (longest, 20):
            ids, logits = engine.greedy_ids(prompt_of(num_tok), NEW_TOK)
            expected_ids, expected_logits = reference_greedy(plain, prompt_of(num_tok), NEW_TOK)
            assert logits.equal(expected_logits), f"{num_tok} tokens: off by {(logits - expected_logits).abs().max()}"
            assert ids == expected_ids
    finally:
        engine.close()
