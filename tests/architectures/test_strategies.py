"""Every strategy on a wide model (128 experts, 8 a token), on both back ends: EXACT, changed without a load, and one
pool counted once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.backends.offloaded_model import OffloadedModel
from engine.commands.plan_model import plan_model
from engine.config import GGML, STRATEGIES, TRANSFORMERS, EngineConfig
from engine.telemetry.snapshots import Telemetry
from tests.architectures.test_ggml_exact import answers as ggml_answers
from tests.architectures.test_ggml_exact import open_model
from tests.architectures.tiny import save_checkpoint
from tests.gguf_files import write_gguf

NUM_EXPERTS, TOP_K, NUM_LAYERS, NEW_TOK = 128, 8, 3, 8
PROMPTS = (5, 70)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wide") / "model"
    wide = {"num_experts": NUM_EXPERTS, "num_experts_per_tok": TOP_K}
    return save_checkpoint(place, "qwen3_moe", torch.bfloat16, num_positions=256, **wide)


def config_of(folder: Path, backend: str, residency: float) -> EngineConfig:
    return EngineConfig(
        model=str(folder),
        backend=backend,
        residency=residency,
        context_tok=128,
        compute_threads=1,
        prefill_chunk_tok=64,
    )


def opened(config: EngineConfig) -> OffloadedModel:
    return OffloadedModel(config, Path(config.model), lambda progress: None, lambda: False)


def answers(engine: OffloadedModel) -> list[tuple[list[int], torch.Tensor]]:
    return [engine.greedy_ids([(7 * i + 3) % 120 + 3 for i in range(num_tok)], NEW_TOK) for num_tok in PROMPTS]


@pytest.fixture(scope="module", params=[TRANSFORMERS, GGML])
def whole(request: pytest.FixtureRequest, folder: Path) -> Iterator[tuple[str, list[tuple[list[int], torch.Tensor]]]]:
    engine = opened(config_of(folder, request.param, 1.0))
    try:
        yield request.param, answers(engine)
    finally:
        engine.close()


def test_every_strategy_writes_the_whole_models_tokens(
    folder: Path,
    whole: tuple[str, list[tuple[list[int], torch.Tensor]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend, expected = whole
    monkeypatch.setenv("MOE_CHAT_HOME", str(tmp_path))
    engine = opened(replace(config_of(folder, backend, 0.15), strategy="moe-infinity"))
    try:
        for name in STRATEGIES:
            before = engine.budget.total_bytes
            engine.set_strategy(replace(engine.config, strategy=name))
            for (ids, logits), (whole_ids, whole_logits) in zip(answers(engine), expected, strict=True):
                assert ids == whole_ids, name
                assert bool((logits == whole_logits).all()), name
            engine.cache.check_integrity()
            engine.end_request()
            counters = engine.cache.total_counters()
            assert counters.routed == len(PROMPTS) * (NEW_TOK - 1) * NUM_LAYERS * TOP_K, name
            assert counters.resident_hits == 0 or name != "no-cache", "prefill leaves it nothing"
            groups = engine.budget.groups
            assert engine.cache.slot_groups == groups
            assert engine.pool.num_slots == groups.num_slots
            snapshot = Telemetry(engine).snapshot()
            assert sum(snapshot.slots_per_layer) == groups.num_slots, "the panels count a pool once"
            assert snapshot.num_pool_slots == (0 if groups.is_per_layer else groups.num_slots)
            assert engine.budget.slot_bytes == engine.pool.total_bytes, "so does the plan"
            assert engine.budget.total_bytes <= max(before, engine.budget.budget_bytes)
        assert engine.past_requests.path.exists()
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("strategy", "num_slots"),
    [("moe-infinity", 58), ("duoserve", 2 * TOP_K), ("no-cache", TOP_K), ("layer-prefetch", 2 * NUM_EXPERTS)],
)
def test_the_plan_is_the_strategys(folder: Path, strategy: str, num_slots: int) -> None:
    config = replace(config_of(folder, TRANSFORMERS, 0.15), strategy=strategy)
    outcome = plan_model(config, folder, lambda: False)
    assert outcome.report["slots"] == f"{num_slots} slots in one pool"
    assert outcome.report["slot_groups"] == {"slots": [num_slots], "group_of_layer": [0] * NUM_LAYERS}
    assert f"strategy {strategy}" in outcome.lines


def test_layers_whose_experts_differ_in_size_share_a_pool(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "mixed.gguf", "qwen3moe", "Q4_K_M", layers=4)
    found = []
    for options in ({"residency": 1.0}, {"residency": 0.4, "strategy": "moe-infinity"}):
        engine = open_model(path, **options)
        try:
            assert len({layer.expert_bytes for layer in engine.loaded.plan.geometry.layers}) > 1
            found.append(ggml_answers(engine, (7, 64)))
            engine.cache.check_integrity()
        finally:
            engine.close()
    for (ids, logits), (whole_ids, whole_logits) in zip(found[1], found[0], strict=True):
        assert bool((logits == whole_logits).all())
        assert ids == whole_ids
