"""The link: order, cancelling, errors, speed."""

import threading
import time

import pytest

from offload.errors import ExpertReadError, WaitCancelled
from offload.link.expert_link import DEMAND, PREFETCH
from offload.link.meter import LinkMeter


def submit(link, expert, priority=DEMAND, num_bytes=64):
    return link.submit(0, expert, memoryview(bytearray(num_bytes)), num_bytes, priority)


@pytest.fixture
def busy(new_source, new_link):
    """A link of one thread that is held up by the copy of expert 0; what is submitted next stays queued."""
    source = new_source(is_open=False)
    link = new_link(source, num_threads=1)
    first = submit(link, 0)
    source.wait_started(1)
    yield source, link, first
    source.open()


def test_a_copy_lands_in_its_destination_and_then_costs_no_wait(new_source, new_link, pattern):
    destination = memoryview(bytearray(64))
    link = new_link(new_source())
    copy = link.submit(3, 5, destination, 64, DEMAND)
    copy.wait()
    assert bytes(destination) == pattern(3, 5)
    assert copy.is_done
    assert copy.moved_bytes == 64
    assert copy.wait() == 0.0
    assert link.demand_eta_s(copy) == 0.0


def test_demand_goes_first_in_order_of_submission(busy, drain):
    source, link, _ = busy
    for expert, priority in ((1, PREFETCH), (2, DEMAND), (3, PREFETCH), (4, DEMAND), (5, DEMAND)):
        submit(link, expert, priority)
    assert link.queued == 5
    source.open()
    drain(link)
    assert [expert for _, expert in source.started] == [0, 2, 4, 5, 1, 3]
    assert link.queued == 0


def test_a_promoted_prefetch_joins_the_demand_queue(busy, drain):
    source, link, _ = busy
    early, late, demand = submit(link, 1, PREFETCH), submit(link, 2, PREFETCH), submit(link, 3)
    assert link.promote(late)
    assert not link.promote(late)
    assert not link.promote(demand)
    source.open()
    drain(link)
    assert [expert for _, expert in source.started] == [0, 3, 2, 1]
    assert (early.priority, late.priority, demand.priority) == (PREFETCH, DEMAND, DEMAND)
    assert not link.promote(early)
    assert early.priority == PREFETCH, "a copy that ran as a prefetch stays one"


def test_cancel_takes_a_queued_copy_out_and_leaves_a_started_one(busy, drain):
    source, link, first = busy
    queued = submit(link, 1, PREFETCH)
    assert link.cancel(queued)
    assert not link.cancel(queued)
    assert not link.cancel(first)
    source.open()
    drain(link)
    assert source.started == [(0, 0)]
    with pytest.raises(ExpertReadError, match="cancelled"):
        queued.wait()


def test_a_wait_is_given_up_when_the_user_stops_and_the_copy_goes_on(busy):
    source, _, first = busy
    with pytest.raises(WaitCancelled):
        first.wait(lambda: True)
    source.open()
    assert first.wait(lambda: False) >= 0
    assert first.error is None


def test_several_can_wait_for_one_copy(busy):
    source, _, first = busy
    waits = []
    threads = [threading.Thread(target=lambda: waits.append(first.wait())) for _ in range(3)]
    for thread in threads:
        thread.start()
    source.open()
    for thread in threads:
        thread.join()
    assert len(waits) == 3


@pytest.mark.parametrize(
    "error", [ExpertReadError("The disk is gone."), OSError("odd"), KeyError("bug"), MemoryError()]
)
def test_a_failure_belongs_to_its_copy_and_the_thread_lives_on(new_source, new_link, error, drain):
    source = new_source()
    source.failing, source.error = {(0, 1)}, error
    link = new_link(source, num_threads=1)
    bad, good = submit(link, 1), submit(link, 2)
    good.wait()
    with pytest.raises(ExpertReadError) as caught:
        bad.wait()
    assert caught.value is error or caught.value.__cause__ is error
    drain(link)
    assert link.bytes_moved == 64


def test_bandwidth_is_none_before_the_first_copy_and_measured_after(busy, drain):
    source, link, first = busy
    assert link.bytes_per_s is None
    assert link.best_bytes_per_s is None
    assert link.demand_eta_s(first) is None
    source.open()
    for expert in range(20):
        submit(link, expert)
    drain(link)
    assert link.bytes_moved == 21 * 64
    assert link.bytes_per_s > 0
    assert link.best_bytes_per_s > 0


def test_eta_is_that_of_the_demand_queue_even_for_a_prefetch(new_source, new_link, drain):
    source = new_source()
    link = new_link(source, num_threads=1)
    submit(link, 0)
    drain(link)
    source._is_open = False
    started = submit(link, 1)
    source.wait_started(2)
    first, prefetches = submit(link, 2), [submit(link, 3, PREFETCH), submit(link, 4, PREFETCH)]
    second = submit(link, 5)
    unit_s = link.demand_eta_s(started)
    assert link.demand_eta_s(first) == pytest.approx(3 * unit_s), "half of what is on the link, and itself"
    assert link.demand_eta_s(second) == pytest.approx(5 * unit_s)
    for prefetch in prefetches:
        assert link.demand_eta_s(prefetch) == pytest.approx(7 * unit_s), "it would go behind the demand copies"
        assert prefetch.priority == PREFETCH
    link.promote(prefetches[1])
    assert link.demand_eta_s(prefetches[1]) == pytest.approx(7 * unit_s)
    assert link.demand_eta_s(prefetches[0]) == pytest.approx(9 * unit_s)
    source.open()


def test_an_emulated_link_is_never_faster_than_its_rate_over_many_copies(new_source, new_link, drain):
    """How much slower it is depends on what else the machine does."""
    link = new_link(new_source(), num_threads=4, emulated_bytes_per_s=10e6)
    start_s = time.perf_counter()
    for expert in range(60):
        submit(link, expert % 8, num_bytes=50_000)
    drain(link)
    rate = 60 * 50_000 / (time.perf_counter() - start_s)
    assert rate < 1.1 * 10e6
    assert 0.5 * rate < link.bytes_per_s < 1.1 * 10e6
    assert link.emulated_bytes_per_s == 10e6


def test_an_idle_emulated_link_saves_up_no_time(new_source, new_link, drain):
    link = new_link(new_source(), emulated_bytes_per_s=2e6)
    for _ in range(3):
        start_s = time.perf_counter()
        submit(link, 0, num_bytes=20_000).wait()
        assert time.perf_counter() - start_s >= 0.0099
        drain(link)


def test_close_fails_what_is_queued_and_can_be_repeated(new_source, new_link, drain):
    source = new_source(is_open=False)
    link = new_link(source, num_threads=1)
    first, queued = submit(link, 0), submit(link, 1)
    source.wait_started(1)
    closing = threading.Thread(target=link.close)
    closing.start()
    with pytest.raises(ExpertReadError, match="closed"):
        queued.wait()
    source.open()
    closing.join()
    first.wait()
    link.close()
    drain(link)
    with pytest.raises(RuntimeError, match="closed"):
        submit(link, 2)


def test_closing_does_not_sit_out_an_emulated_transfer(new_source, new_link):
    source = new_source()
    link = new_link(source, emulated_bytes_per_s=1.0)
    submit(link, 0, num_bytes=1000)
    source.wait_started(1)
    link.close()


@pytest.mark.parametrize("options", [{"num_threads": 0}, {"emulated_bytes_per_s": 0.0}])
def test_an_impossible_link_is_refused(new_source, options):
    from offload.link.link import Link

    with pytest.raises(ValueError, match="at least one thread"):
        Link(new_source(), **options)


def test_the_meter_counts_overlapping_copies_as_one_busy_time(monkeypatch):
    now_s = 0.0
    monkeypatch.setattr("offload.link.meter.time.perf_counter", lambda: now_s)
    meter = LinkMeter()
    meter.begin()
    meter.begin()
    now_s = 1.0
    meter.end(100)
    now_s = 2.0
    meter.end(100)
    assert meter.bytes_per_s == 100
    now_s = 50.0
    meter.begin()
    now_s = 51.0
    meter.end(100)
    assert meter.bytes_per_s == 100, "idle time does not count"
    assert meter.bytes_moved == 300


class PartedSource:
    """Every expert is three reads that wait at a gate."""

    def __init__(self):
        self.started, self.gate, self.changed = [], threading.Event(), threading.Condition()
        self.failing = set()

    def num_parts(self, layer, expert):
        return 3

    def read_part(self, layer, expert, part, destination):
        with self.changed:
            self.started.append((expert, part))
            self.changed.notify_all()
        assert self.gate.wait(10)
        if (expert, part) in self.failing:
            raise ExpertReadError("The disk is gone.")
        destination[part] = expert
        return 1

    def read_into(self, layer, expert, destination):
        return sum(self.read_part(layer, expert, part, destination) for part in range(3))

    def wait_started(self, num_reads):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.started) >= num_reads, 10)


def test_threads_share_the_reads_of_a_copy_and_end_what_is_begun_first(new_link, drain):
    source = PartedSource()
    link = new_link(source, num_threads=2)
    prefetched = submit(link, 1, PREFETCH, 3)
    source.wait_started(2)
    demanded, bad = submit(link, 2, DEMAND, 3), submit(link, 3, DEMAND, 3)
    source.failing = {(3, 1)}
    assert prefetched.is_started
    assert not link.cancel(prefetched)
    assert not demanded.is_started
    source.gate.set()
    drain(link)
    assert [expert for expert, _ in source.started] == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert (prefetched.moved_bytes, demanded.moved_bytes) == (3, 3)
    with pytest.raises(ExpertReadError, match="The disk is gone"):
        bad.wait()
    assert link.bytes_moved == 8
