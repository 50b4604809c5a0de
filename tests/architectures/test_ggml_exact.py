"""The ggml back end: EXACT against itself held whole, and close to the library and to llama.cpp on the same weights."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.arrays import Array
from engine.backends.offloaded_model import OffloadedModel
from engine.commands.bench.kl import float32_of, log_softmax
from engine.commands.bench.kl import kl as divergence
from engine.config import FULL_LAYER, GGML, RING, TRANSFORMERS, EngineConfig
from offload.replay.trace_writer import TraceWriter
from offload.residency.warming import fill_layers
from tests.architectures.tiny import save_checkpoint
from tests.gguf_files import write_gguf

NEW_TOK = 6
PROMPTS = (1, 7, 64, 600)


def open_model(path: Path, backend: str = GGML, **settings: object) -> OffloadedModel:
    config = EngineConfig(model=str(path), backend=backend, context_tok=640, compute_threads=1, **settings)  # type: ignore[arg-type]
    return OffloadedModel(config, path, lambda progress: None, lambda: False)


def answers(engine: OffloadedModel, prompts: Sequence[int] = PROMPTS) -> list[tuple[list[int], Array]]:
    vocabulary = engine.loaded.vocabulary_tok
    return [engine.greedy_ids([(7 * i + 3) % vocabulary for i in range(num_tok)], NEW_TOK) for num_tok in prompts]


def answered(path: Path, **settings: object) -> list[tuple[list[int], Array]]:
    engine = open_model(path, **settings)
    try:
        fill_layers(engine.cache, lambda: False)
        given = answers(engine)
        engine.cache.check_integrity()
        return given
    finally:
        engine.close()


FILES = ("qwen3moe/Q4_K_M", "qwen3moe/Q4_0", "glm4moe/Q8_0", "glm4moe/F16", "glm4moe/BF16")


@pytest.fixture(scope="module", params=FILES)
def gguf_model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    arch, quant = request.param.split("/")
    return write_gguf(tmp_path_factory.mktemp("gguf") / f"{arch}-{quant}.gguf", arch, quant, layers=4)


@pytest.fixture(scope="module", params=["qwen3_moe", "glm4_moe"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("safetensors") / request.param
    return save_checkpoint(place, request.param, torch.bfloat16, num_positions=640)


@pytest.mark.parametrize("prefill", [RING, FULL_LAYER])
def test_few_slots_give_what_the_whole_model_gives(gguf_model: Path, prefill: str) -> None:
    whole = answered(gguf_model, residency=1.0)
    few = answered(gguf_model, residency=0.4, prefill=prefill)
    for (ids, logits), (whole_ids, whole_logits) in zip(few, whole, strict=True):
        assert np.array_equal(logits, whole_logits)
        assert ids == whole_ids


def test_a_step_in_one_graph_gives_what_layers_give(gguf_model: Path) -> None:
    engine = open_model(gguf_model, residency=1.0)
    try:
        with engine.state.watched(lambda layer: None):
            by_layers = recorded(engine, 20)
        fill_layers(engine.cache, lambda: False)
        assert engine.decoder.whole.is_ready()  # type: ignore[attr-defined]
        before = engine.cache.total_counters()
        in_one = recorded(engine, 20)
        counters = engine.cache.total_counters() - before
        top_ks = [layer.top_k for layer in engine.loaded.plan.geometry.layers]
        assert counters.routed == counters.hits == 20 * sum(top_ks)
        for one, other in zip(in_one, by_layers, strict=True):
            assert np.array_equal(one, other)
    finally:
        engine.close()


def recorded(engine: OffloadedModel, num_new_tok: int) -> list[Array]:
    """The logits of every step of an answer; then, of every layer, its experts and its scores."""
    geometry = engine.loaded.plan.geometry
    engine.decoder.cache.reset()
    steps = [engine.decoder.prefill([5, 6, 7], lambda done_tok: None)]
    engine.state.recorder = writer = TraceWriter("m", "", geometry)
    steps += [engine.decoder.step(int(steps[-1].argmax())) for _ in range(num_new_tok)]
    engine.state.recorder = None
    trace = writer.trace()
    assert trace.scores is not None
    return [*steps, trace.ids, trace.scores]


@pytest.mark.parametrize("prefill", [RING, FULL_LAYER])
def test_a_folder_in_few_slots_gives_what_it_gives_whole(folder: Path, prefill: str) -> None:
    whole = answered(folder, residency=1.0)
    few = answered(folder, residency=0.4, prefill=prefill, eviction="lru", prefetch="none")
    for (ids, logits), (whole_ids, whole_logits) in zip(few, whole, strict=True):
        assert np.array_equal(logits, whole_logits)
        assert ids == whole_ids


def test_near_the_library_on_the_same_weights(folder: Path) -> None:
    ours = answered(folder, residency=0.5)
    library = answered(folder, backend=TRANSFORMERS, residency=0.5)
    for (_, logits), (_, reference) in zip(ours, library, strict=True):
        assert kl(reference, logits) < 5e-3


@pytest.mark.parametrize(("arch", "quant"), [("qwen3moe", "F32"), ("glm4moe", "F32"), ("qwen3moe", "Q4_K_M")])
def test_near_llama_cpp_on_the_same_file(arch: str, quant: str, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", arch, quant, layers=4, tied=arch == "glm4moe")
    ids = [(11 * i + 5) % 300 for i in range(40)]
    engine = open_model(path, residency=0.5)
    try:
        _, logits = engine.greedy_ids(ids, 1)
    finally:
        engine.close()
    target = tmp_path / "logits.npy"
    command = [sys.executable, "-P", "-m", "tests.architectures.llama_logits", str(path), str(target), *map(str, ids)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "GGML_NO_BACKTRACE": "1"}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    reference = np.load(target)
    assert kl(reference, logits) < (1e-4 if quant == "F32" else 1e-2)
    assert int(reference.argmax()) == int(logits.argmax())


def kl(reference: Array, logits: Array) -> float:
    return divergence(log_softmax(float32_of(reference)), log_softmax(float32_of(logits)))
