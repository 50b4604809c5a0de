"""Attention of the ggml back end: windows far behind their ring, after a crop, and where a crop reaches too far;
compressed rows; a cache in eight bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import engine.backends.ggml.kv_cache as kv_cache
from engine.arrays import Array
from engine.backends.offloaded_model import OffloadedModel
from engine.config import GGML, EngineConfig
from tests.architectures.test_ggml_exact import kl
from tests.architectures.test_ggml_families import VOCABULARY_TOK, save

WINDOW_TOK, CHUNK_TOK, RING_TOK = 16, 64, 256
IDS = [(11 * i * i + 5 * i) % VOCABULARY_TOK for i in range(600)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("windows"), "gpt_oss")


@pytest.fixture
def short_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    """As short as a window and a chunk allow, so that every test writes over them more than once."""
    monkeypatch.setattr(kv_cache, "KEPT_TOK", RING_TOK - WINDOW_TOK - CHUNK_TOK)


def opened(folder: Path, **settings: object) -> OffloadedModel:
    settings = {"residency": 0.5, "prefill_chunk_tok": CHUNK_TOK, "compute_threads": 1, **settings}
    config = EngineConfig(model=str(folder), backend=GGML, context_tok=640, **settings)  # type: ignore[arg-type]
    return OffloadedModel(config, folder, lambda progress: None, lambda: False)


def told(engine: OffloadedModel, ids: list[int], num_prompt_tok: int) -> Array:
    """The logits behind `ids`, the first of them as a prompt beyond what the cache holds, the others one by one."""
    logits = engine.decoder.prefill(ids[:num_prompt_tok], lambda done_tok: None)
    for token in ids[num_prompt_tok:]:
        logits = engine.decoder.step(token)
    return logits


def expected(folder: Path, ids: list[int]) -> torch.Tensor:
    library = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        logits: torch.Tensor = library(torch.tensor([ids])).logits[0, -1]
    return logits


@pytest.mark.usefixtures("short_rings")
@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.long)])  # two share a long cache out
def test_far_behind_the_ring_and_after_a_crop(folder: Path, threads: int) -> None:
    other = [(7 * i + 2) % VOCABULARY_TOK for i in range(60)]
    engine = opened(folder, compute_threads=threads)
    whole = opened(folder, residency=1.0, compute_threads=threads)
    try:
        assert engine.decoder.cache.ring_tok == RING_TOK
        for each in (engine, whole):
            assert kl(expected(folder, IDS), told(each, IDS, 580)) < 1e-4
            assert each.decoder.cache.keep_prefix(540)
        continued = [told(each, IDS[:540] + other, 590) for each in (engine, whole)]
        assert np.array_equal(*continued)
        assert kl(expected(folder, IDS[:540] + other), continued[0]) < 1e-4
    finally:
        engine.close()
        whole.close()


@pytest.mark.usefixtures("short_rings")
def test_a_crop_that_reaches_too_far_empties_the_cache(folder: Path) -> None:
    engine = opened(folder)
    try:
        told(engine, IDS, 600)
        cache = engine.decoder.cache
        last = 600 - RING_TOK + WINDOW_TOK - 1
        assert cache.holds_window(last)
        assert not cache.keep_prefix(last - 1)
        assert cache.tokens == []
        assert kl(expected(folder, IDS[:300]), told(engine, IDS[:300], 290)) < 1e-4
    finally:
        engine.close()


@pytest.mark.usefixtures("short_rings")
def test_windows_in_every_layer(tmp_path: Path) -> None:
    folder = save(tmp_path, "qwen3_moe", use_sliding_window=True, sliding_window=WINDOW_TOK)
    engine = opened(folder)
    try:
        assert kl(expected(folder, IDS[:400]), told(engine, IDS[:400], 395)) < 1e-4
    finally:
        engine.close()


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.long)])
def test_compressed_rows_behind_several_chunks(tmp_path: Path, threads: int) -> None:
    folder = save(tmp_path, "deepseek_v3")
    engine = opened(folder, compute_threads=threads)
    try:
        assert kl(expected(folder, IDS), told(engine, IDS, 590)) < 1e-4
    finally:
        engine.close()


def test_a_cache_in_eight_bits_is_near_and_exact(folder: Path) -> None:
    found, sizes = [], []
    for residency, kv_type in ((0.4, "q8_0"), (1.0, "q8_0"), (1.0, "f16")):
        engine = opened(folder, residency=residency, kv_type=kv_type)
        found.append(engine.greedy_ids(IDS[:300], 6))
        sizes.append(engine.budget.kv_bytes)
        engine.close()
    assert sizes[2] > 1.8 * sizes[0]
    assert found[0][0] == found[1][0]
    assert np.array_equal(found[0][1], found[1][1])
    assert 0 < kl(found[2][1], found[1][1]) < 1e-2
