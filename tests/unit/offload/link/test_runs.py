"""Experts that follow each other in a file are read at once when many are queued."""

import random
import threading

import pytest

from offload.errors import ExpertReadError
from offload.geometry import Geometry, LayerGeometry
from offload.link.expert_link import DEMAND, PREFETCH
from offload.link.expert_source import FileSource, RunSource, Span
from offload.link.link import Link
from offload.link.meter import LinkMeter
from offload.link.staging import LayerStaging
from offload.slot_layout import direct_layout

NUM_EXPERTS = 12


@pytest.fixture(params=[4096, 5000])
def stored(tmp_path, request):
    """Files of two parts of 12 experts, as a fused checkpoint holds them: (source, slot bytes, an expert's slot)."""
    num_bytes, start = request.param, 1000
    content = random.Random(1).randbytes(start + 2 * NUM_EXPERTS * num_bytes)
    (tmp_path / "weights").write_bytes(content)
    starts = (start, start + NUM_EXPERTS * num_bytes)
    offsets, slot_bytes = direct_layout([(at, num_bytes, num_bytes) for at in starts])

    def spans(expert):
        return tuple(
            Span(str(tmp_path / "weights"), at + expert * num_bytes, num_bytes, offset)
            for at, offset in zip(starts, offsets, strict=True)
        )

    def slot(expert):
        expected = bytearray(slot_bytes)
        for _, at, size, offset in spans(expert):
            expected[offset : offset + size] = content[at : at + size]
        return expected

    source = FileSource([[spans(expert) for expert in range(NUM_EXPERTS)]])
    yield source, slot_bytes, slot
    source.close()


def test_followers_are_those_next_in_every_file(stored):
    source, _, _ = stored
    assert isinstance(source, RunSource)
    assert [source.follower(0, expert) for expert in range(NUM_EXPERTS)] == [*range(1, NUM_EXPERTS), None]


def test_experts_in_the_files_order_not_the_numbers_order(tmp_path):
    (tmp_path / "weights").write_bytes(bytes(range(100)))
    order = [0, 2, 1]
    spans = {expert: (Span(str(tmp_path / "weights"), 10 * at, 10, 0),) for at, expert in enumerate(order)}
    source = FileSource([[spans[expert] for expert in range(3)], [()]])
    assert [source.follower(0, expert) for expert in range(3)] == [2, None, 1]
    assert source.follower(1, 0) is None
    source.close()


def test_a_run_gives_each_slot_its_experts_bytes(stored):
    source, slot_bytes, slot = stored
    for experts in ([3], [0, 1, 2], [7, 8, 9, 10, 11], [5, 2, 9], list(range(NUM_EXPERTS))):
        slots = [memoryview(bytearray(slot_bytes)) for _ in experts]
        moved = source.read_run(0, experts, slots)
        assert moved == [source.read_into(0, expert, memoryview(bytearray(slot_bytes))) for expert in experts]
        assert [bytes(memory) for memory in slots] == [bytes(slot(expert)) for expert in experts]


class Watched:
    """A source that counts its reads, the first of which waits until the test has queued the others."""

    def __init__(self, source):
        self._source, self.runs, self.go, self.entered = source, [], threading.Event(), threading.Event()

    def read_into(self, layer, expert, destination):
        self.entered.set()
        self.go.wait(10)
        self.runs.append([expert])
        return self._source.read_into(layer, expert, destination)

    def follower(self, layer, expert):
        return self._source.follower(layer, expert)

    def read_run(self, layer, experts, destinations):
        self.runs.append(list(experts))
        return self._source.read_run(layer, experts, destinations)


def submitted(link, experts, slot_bytes, priority=DEMAND):
    memories = [memoryview(bytearray(slot_bytes)) for _ in experts]
    copies = [
        link.submit(0, expert, memory, slot_bytes, priority) for expert, memory in zip(experts, memories, strict=True)
    ]
    return copies, memories


def test_a_thread_takes_its_share_of_what_follows_and_nothing_that_was_cancelled(stored):
    source, slot_bytes, slot = stored
    watched = Watched(source)
    link = Link(watched, num_threads=1)
    first, _ = submitted(link, [11], slot_bytes)
    assert watched.entered.wait(10)
    copies, memories = submitted(link, [4, 9, 3, 5, 6, 0], slot_bytes)
    late, _ = submitted(link, [7], slot_bytes, PREFETCH)
    assert link.cancel(copies[4])
    watched.go.set()
    for copy in [*first, *copies[:4], copies[5], *late]:
        copy.wait()
    link.close()
    assert watched.runs == [[11], [4, 5], [9], [3], [0], [7]]
    assert [bytes(memories[at]) for at in (0, 1, 2, 3, 5)] == [bytes(slot(expert)) for expert in (4, 9, 3, 5, 0)]


def test_in_a_run_that_fails_each_copy_has_its_own_outcome(stored):
    source, slot_bytes, slot = stored
    watched = Watched(source)
    link = Link(watched, num_threads=1)
    first, _ = submitted(link, [11], slot_bytes)
    assert watched.entered.wait(10)
    copies, memories = submitted(link, [2, 3], slot_bytes)
    short = link.submit(0, 4, memoryview(bytearray(10)), 10, DEMAND)
    watched.go.set()
    for copy in [*first, *copies]:
        copy.wait()
    with pytest.raises(ExpertReadError, match=r"expert 4 .*do not fit into a slot of 10 bytes"):
        short.wait()
    link.close()
    assert watched.runs == [[11], [2, 3, 4], [2], [3], [4]]
    assert [bytes(memory) for memory in memories] == [bytes(slot(2)), bytes(slot(3))]


def test_a_whole_layer_is_staged_in_few_reads(stored):
    source, slot_bytes, slot = stored
    watched = Watched(source)
    link = Link(watched, num_threads=2)
    watched.go.set()
    staging = LayerStaging(Geometry((LayerGeometry(0, NUM_EXPERTS, 2, slot_bytes),)), link)
    staging.begin(0)
    for expert in range(NUM_EXPERTS):
        staging.wait_expert(0, expert)
        assert bytes(staging.memory(0, expert)) == bytes(slot(expert))
    link.close()
    assert sorted(expert for run in watched.runs for expert in run) == list(range(NUM_EXPERTS))


def test_reads_of_several_experts_are_no_measure_of_the_best(monkeypatch):
    now_s = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now_s[0])
    meter = LinkMeter()

    def copies(count, num_bytes, is_single):
        for _ in range(count):
            meter.begin()
            now_s[0] += 1.0
            meter.end(num_bytes, is_single)

    copies(10, 100, True)
    assert meter.best_bytes_per_s == 100
    copies(40, 1000, False)
    assert (meter.bytes_per_s, meter.best_bytes_per_s) == (1000, 100)
    copies(31, 200, True)
    assert meter.best_bytes_per_s == 100
    copies(1, 200, True)
    assert meter.best_bytes_per_s == 200
