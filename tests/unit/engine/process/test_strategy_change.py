"""The strategy changes between two answers of one chat: nothing is loaded again, nothing computed anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.events import StrategySet
from offload.errors import BudgetError
from tests.architectures.tiny import save_endless_checkpoint
from tests.unit.engine.commands.tiny_bench import TinyBench, words


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_endless_checkpoint(tmp_path_factory.mktemp("endless") / "m")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOE_CHAT_HOME", str(tmp_path))


def test_the_conversation_goes_on_as_it_would_have(folder: Path) -> None:
    with TinyBench(folder, eviction="lru") as bench:
        first = bench.ask(words(0, 6)).end.text
        expected = bench.ask(words(0, 6), first, words(50, 4)).end
    with TinyBench(folder, eviction="lru") as bench:
        assert bench.ask(words(0, 6)).end.text == first
        bench.session.set_strategy("moe-infinity")
        told = bench.events[-1]
        assert isinstance(told, StrategySet)
        assert told.strategy == "moe-infinity"
        assert dict(told.effective)["strategy"] == "moe-infinity", "options for another strategy are dropped"
        assert "in one pool" in dict(told.effective)["slots"]
        assert bench.snapshots[-1].num_pool_slots == bench.engine.budget.groups.num_slots
        again = bench.ask(words(0, 6), first, words(50, 4)).end
        assert again.text == expected.text
        assert again.stats.reused_tok == expected.stats.reused_tok > 0
        assert again.stats.runs_on.endswith(", moe-infinity")
        assert bench.engine.past_requests.path.exists()
        bench.session.set_strategy("moe-core")
        assert bench.snapshots[-1].num_pool_slots == 0


def test_past_requests_are_kept_and_a_damaged_file_is_told_and_replaced(folder: Path) -> None:
    with TinyBench(folder, strategy="moe-infinity") as bench:
        bench.ask(words(0, 6))
        bench.ask(words(3, 6))
        path, size = bench.engine.past_requests.path, bench.engine.past_requests.collection.size
        assert size == 2
    with TinyBench(folder, strategy="moe-infinity") as bench:
        assert bench.engine.past_requests.collection.size == size
    path.write_bytes(path.read_bytes()[:-100])
    with TinyBench(folder, strategy="moe-infinity") as bench:
        assert bench.engine.past_requests.collection.size == 0
        assert any("kept beside" in notice for notice in bench.session.ready().notices)
        bench.ask(words(0, 6))
    with TinyBench(folder, strategy="moe-infinity") as bench:
        assert bench.engine.past_requests.collection.size == 1


def test_a_strategy_that_does_not_fit_changes_nothing(folder: Path) -> None:
    with TinyBench(folder) as bench:
        budget = bench.engine.budget.total_bytes
        bench.engine.config = bench.engine.config.__class__(
            model=str(folder), memory_bytes=budget + 4096, compute_threads=1, prefill_chunk_tok=16
        )
        before = bench.ask(words(0, 6)).end.text
        with pytest.raises(BudgetError):
            bench.session.set_strategy("layer-prefetch")
        told = bench.events[-1]
        assert isinstance(told, StrategySet)
        assert told.strategy == "moe-core"
        assert bench.engine.is_whole
        assert bench.engine.config.strategy == "moe-core"
        assert bench.ask(words(0, 6)).end.text == before
