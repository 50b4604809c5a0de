"""The policies bench on a tiny model: what it reports holds together, and the engine is as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.bench.policies import VARIANTS, bench_policies
from engine.errors import ConfigError
from offload.errors import WaitCancelled
from tests.architectures.test_matrix import open_model, prompt_of
from tests.architectures.tiny import save_checkpoint


def never() -> bool:
    return False


def ignore(stage: str, done: int, total: int) -> None:
    pass


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
        assert set(rows) == set(VARIANTS)
        assert rows["load-on-demand"]["speedup_over_load_on_demand"] == 1.0
        assert all(row["is_exact"] for name, row in rows.items() if name != "approx")
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
