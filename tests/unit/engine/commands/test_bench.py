"""The benches on a tiny model: what they report holds together, and the engine is as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.backends.ggml.availability import ggml_problem
from engine.commands.bench.divergence import bench_divergence
from engine.commands.bench.overhead import bench_overhead
from engine.commands.bench.policies import bench_policies
from engine.commands.bench.prediction import bench_prediction
from engine.commands.bench.prefill import bench_prefill
from engine.commands.bench.strategies import bench_strategies
from engine.commands.bench.variants import QUICK_VARIANTS
from engine.commands.bench.workload import engine_for_bench, make_all_resident
from engine.config import STRATEGIES
from engine.errors import ConfigError
from offload.errors import WaitCancelled
from tests.architectures.test_matrix import open_model, prompt_of
from tests.architectures.tiny import save_checkpoint
from tests.gguf_files import write_gguf

needs_ggml = pytest.mark.skipif(bool(ggml_problem()), reason="ggml cannot be used here")


def never() -> bool:
    return False


def ignore(stage: str, done: int, total: int) -> None:
    pass


def test_an_engine_for_a_bench_is_exact_and_restored_afterwards(tmp_path: Path) -> None:
    engine = open_model(save_checkpoint(tmp_path / "m", "qwen3_moe"), residency=0.5, mode="approx", alpha=100.0)
    try:
        engine.set_mode("approx")
        with engine_for_bench(engine, never) as base:
            assert not engine.state.is_approx
            assert base.mode == "exact"
            make_all_resident(engine, base)
            assert engine.cache.residents() == (tuple(range(8)),) * 3
        assert engine.state.is_approx
        assert engine.cache.slots_per_layer == engine.budget.slots_per_layer
    finally:
        engine.close()


@pytest.mark.long
def test_every_exact_variant_gives_the_same_tokens_and_nobody_beats_the_bound(tmp_path: Path) -> None:
    engine = open_model(save_checkpoint(tmp_path / "m", "qwen3_moe"), residency=0.5)
    try:
        before, _ = engine.greedy_ids(prompt_of(7), 6)
        outcome = bench_policies(engine, True, ("own",), ignore, never)
        assert outcome.is_ok
        link = outcome.report["link own"]
        assert isinstance(link, dict)
        rows = {row["name"]: row for row in link["variants"]}
        assert set(rows) == set(QUICK_VARIANTS)
        assert rows["load-on-demand"]["speedup_over_load_on_demand"] == 1.0
        assert all(row["is_exact"] for name, row in rows.items() if name != "approx")
        assert all(row["bound_loads_per_tok"] <= row["loads_per_tok"] for name, row in rows.items() if name != "approx")
        loads = outcome.report["eviction"]
        assert isinstance(loads, dict)
        for counts in loads.values():
            assert counts["bound"] <= min(counts["history"], counts["lru"], counts["lfu"])
        assert engine.greedy_ids(prompt_of(7), 6)[0] == before
        assert engine.cache.slots_per_layer == engine.budget.slots_per_layer
    finally:
        engine.close()


def test_stopped_or_misnamed_it_leaves_the_engine_as_it_was(tmp_path: Path) -> None:
    engine = open_model(save_checkpoint(tmp_path / "m", "qwen3_moe"), residency=0.5)
    try:
        with pytest.raises(ConfigError, match="bandwidth"):
            bench_policies(engine, True, ("nonsense",), ignore, never)
        with pytest.raises(WaitCancelled):
            bench_policies(engine, True, ("own",), ignore, lambda: True)
        assert engine.greedy_ids(prompt_of(7), 6)[0]
        assert engine.cache.slots_per_layer == engine.budget.slots_per_layer
    finally:
        engine.close()


def test_every_way_of_prefill_gives_the_same_token_and_leaves_the_decode_set(tmp_path: Path) -> None:
    engine = open_model(save_checkpoint(tmp_path / "m", "qwen3_moe"), residency=0.5)
    try:
        before = engine.greedy_ids(prompt_of(7), 6)[0]
        outcome = bench_prefill(engine, True, ("own", "50GB/s"), ignore, never)
        assert outcome.is_ok
        assert outcome.report["switch_tok"] == 2
        link = outcome.report["link 50GB/s"]
        assert isinstance(link, dict)
        assert link["bytes_per_s"] == 50e9
        loaded = {(row["prompt_tok"], row["path"]): row["bytes_loaded"] for row in link["rows"]}
        assert {length for length, _ in loaded} == {1, 2, 4, 16, 64}
        assert loaded[1, "selective"] <= loaded[1, "full layers"]
        assert loaded[64, "one at a time"] <= loaded[64, "full layers"]
        assert engine.greedy_ids(prompt_of(7), 6)[0] == before
        with pytest.raises(ConfigError, match="calibrated on decode"):
            bench_prefill(engine, True, ("B",), ignore, never)
        with pytest.raises(WaitCancelled):
            bench_prefill(engine, True, ("own",), ignore, lambda: True)
    finally:
        engine.close()


def test_recall_is_told_for_every_hidden_state_and_distance(tmp_path: Path) -> None:
    engine = open_model(save_checkpoint(tmp_path / "m", "qwen3_moe"), residency=0.5)
    try:
        outcome = bench_prediction(engine, True, ignore, never)
        assert outcome.is_ok
        names = ("normed MoE input", "residual after attention", "residual after the MoE")
        assert {f"{name}, l+{far}" for name in names for far in (1, 2)} < set(outcome.report)
        near = outcome.report["residual after attention, l+1"]
        assert isinstance(near, dict)
        assert set(near["plain"]) == set(near["corrected"]) == {1, 2}
        for rates in (*near["plain"].values(), *near["corrected"].values()):
            assert set(rates) == {1, 2}, "by rank, up to k"
            assert all(0 <= rate <= 1 for rate in rates.values())
        with pytest.raises(WaitCancelled):
            bench_prediction(engine, True, ignore, lambda: True)
        assert engine.cache.slots_per_layer == engine.budget.slots_per_layer
    finally:
        engine.close()


@needs_ggml
def test_on_ggml_prediction_and_overhead_are_measured_too(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", quant="F16", hidden=64, expert_ff=32, heads=2, head_dim=32)
    engine = open_model(path, residency=0.5, backend="ggml", context_tok=1024)
    try:
        outcome = bench_prediction(engine, True, ignore, never)
        near = outcome.report["residual after attention, l+1"]
        assert isinstance(near, dict)
        assert set(near["plain"]) == set(near["corrected"]) == {1, 2}
        assert set(outcome.report) == {"num_tok", "forms", *(f"residual after attention, l+{far}" for far in (1, 2))}
        report = bench_overhead(engine, 2, ignore, never).report
        medians = report["median_ms"]
        assert isinstance(medians, dict)
        assert set(medians) == {"step ours", "step bare", "moe ours", "moe bare"}
        shares = report["policy_share"], report["python_share"]
        assert all(isinstance(share, float) and 0 < share < 1 for share in shares)
        with pytest.raises(ConfigError, match="is a GGUF file"):
            bench_divergence(engine, 8, ignore, never)
        assert engine.cache.slots_per_layer == engine.budget.slots_per_layer
    finally:
        engine.close()


def test_the_library_in_bf16_is_closer_to_itself_than_to_nothing(tmp_path: Path) -> None:
    engine = open_model(save_checkpoint(tmp_path / "m", "qwen3_moe"), residency=0.5)
    try:
        outcome = bench_divergence(engine, 24, ignore, never)
        ours, bf16 = (outcome.report[f"{name}, token by token"] for name in ("this engine", "transformers bf16"))
        assert isinstance(ours, dict)
        assert isinstance(bf16, dict)
        assert 0 <= ours["kl"] < 1e-2
        assert 0 < bf16["kl"] < 1e-1
        assert engine.decoder.cache.tokens == []
    finally:
        engine.close()


@pytest.mark.long
def test_strategies_are_exact_as_published_and_at_equal_bytes(tmp_path: Path) -> None:
    engine = open_model(save_checkpoint(tmp_path / "m", "qwen3_moe"), residency=0.5)
    try:
        past = engine.past_requests
        outcome = bench_strategies(engine, True, ("own",), ignore, never)
        assert outcome.is_ok
        published, equal = (
            outcome.report["as published, link own"],
            outcome.report["all at equal device bytes, link own"],
        )
        assert isinstance(published, list)
        assert isinstance(equal, list)
        for rows in (published, equal):
            assert [row["name"] for row in rows] == list(STRATEGIES)
            assert all(row["is_exact"] and row["bound_loads_per_tok"] <= row["loads_per_tok"] for row in rows)
        assert len({row["expert_bytes_on_device"] for row in equal}) == 1
        of = {row["name"]: row for row in published}
        assert of["no-cache"]["device_bytes"] <= of["duoserve"]["device_bytes"] < of["layer-prefetch"]["device_bytes"]
        assert of["no-cache"]["counters"]["resident_hits"] == 0
        assert engine.past_requests is past
        assert engine.cache.slot_groups == engine.budget.groups
    finally:
        engine.close()
