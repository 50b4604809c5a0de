"""Threads are tried with the link busy, and only where there is a choice."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.experts.formats.dense import DenseFormat
from engine.plan import machine
from engine.plan.link_load import LinkLoad
from engine.plan.threads import choose_threads
from offload.errors import ExpertReadError
from tests.architectures.test_matrix import open_model
from tests.architectures.tiny import save_checkpoint


@pytest.fixture(autouse=True)
def _threads_as_they_were() -> Iterator[None]:
    kept = torch.get_num_threads()
    yield
    torch.set_num_threads(kept)


class Load:
    """A link load that notes when it is on."""

    def __init__(self) -> None:
        self.is_on, self.count = False, 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        self.is_on, self.count = True, self.count + 1
        try:
            yield
        finally:
            self.is_on = False


def test_every_trial_runs_under_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "num_cores", lambda: 2)
    load, seen = Load(), list[tuple[int, bool]]()
    choice = choose_threads(
        None, torch.set_num_threads, lambda: seen.append((torch.get_num_threads(), load.is_on)), load
    )
    assert {number for number, _ in seen} == {1, 2}
    assert all(is_on for _, is_on in seen)
    assert not load.is_on
    assert choice.num_threads == torch.get_num_threads()
    assert [number for number, _ in choice.trial_ms] == [1, 2]


def test_nothing_is_tried_where_there_is_no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    load = Load()
    monkeypatch.setattr(machine, "num_cores", lambda: 4)
    assert choose_threads(3, torch.set_num_threads, lambda: 1 / 0, load) == (3, ())
    assert torch.get_num_threads() == 3
    monkeypatch.setattr(machine, "num_cores", lambda: 1)
    assert choose_threads(None, torch.set_num_threads, lambda: 1 / 0, load) == (1, ())
    assert load.count == 0


def test_a_step_that_raises_ends_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "num_cores", lambda: 2)
    load = Load()
    with pytest.raises(ZeroDivisionError):
        choose_threads(None, torch.set_num_threads, lambda: 1 / 0, load)
    assert not load.is_on


class Source:
    """Notes what is read; breaks at an expert."""

    def __init__(self, broken: int | None = None) -> None:
        self.broken, self.read = broken, list[tuple[int, int]]()
        self.has_read_all = threading.Event()

    def read_into(self, layer: int, expert: int, destination: memoryview) -> int:
        if expert == self.broken:
            self.has_read_all.set()
            raise ExpertReadError("broken")
        self.read.append((layer, expert))
        if len(set(self.read)) == 6:
            self.has_read_all.set()
        return len(destination)


def test_the_load_reads_expert_after_expert_until_it_is_left() -> None:
    source = Source()
    with LinkLoad(source, [3, 3], [(0, memoryview(bytearray(8))), (1, memoryview(bytearray(8)))]) as load:
        assert source.has_read_all.wait(10)
    assert set(source.read) == {(layer, expert) for layer in range(2) for expert in range(3)}
    num_read = load.num_read
    assert num_read == len(source.read), "nothing is read after it was left"


def test_a_read_that_fails_ends_the_load_quietly() -> None:
    source = Source(broken=2)
    with LinkLoad(source, [3], [(0, memoryview(bytearray(8)))]):
        assert source.has_read_all.wait(10)
    assert source.read == [(0, 0), (0, 1)]


def test_a_model_calibrates_with_real_experts_and_leaves_no_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "num_cores", lambda: 2)
    folder = save_checkpoint(tmp_path / "m", "qwen3_moe", torch.bfloat16)
    computed: list[int] = []
    compute = DenseFormat.compute

    def counted(self: DenseFormat, hidden: torch.Tensor, weights: Sequence[Any], places: Sequence[int]) -> None:
        computed.append(torch.get_num_threads())
        compute(self, hidden, weights, places)

    monkeypatch.setattr(DenseFormat, "compute", counted)
    engine = open_model(folder, compute_threads=None)
    try:
        assert {1, 2} <= set(computed), "experts are computed with every number of threads"
        assert [number for number, _ in engine.threads.trial_ms] == [1, 2]
        assert engine.link.bytes_moved == 0, "the load is not part of what the link shows"
        assert engine.cache.total_counters().routed == 0
        assert engine.decoder.cache.tokens == []
        (short_tok, short_ms), (long_tok, long_ms) = engine.compute_floors_ms
        assert (short_tok, long_tok) == (0, engine.budget.context_tok - 1)
        assert min(short_ms, long_ms) > 0
        engine.cache.check_integrity()
    finally:
        engine.close()
