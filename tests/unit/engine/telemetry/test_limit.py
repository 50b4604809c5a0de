"""How many times the limit an answer took: its own routing, its own start, the link's bandwidth."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.telemetry.compute_floor import ComputeFloor
from engine.telemetry.limit import LimitGauge
from offload.replay.belady import belady_pool_loads
from offload.replay.trace_writer import TraceWriter
from tests.architectures.test_matrix import open_model, prompt_of
from tests.unit.engine.commands.tiny_bench import TinyBench, words
from tests.unit.engine.conftest import TinyFolder


@pytest.fixture
def gauge(tiny_folder: TinyFolder) -> Iterator[LimitGauge]:
    engine = open_model(tiny_folder("qwen3_moe"))
    try:
        yield LimitGauge(engine)
    finally:
        engine.close()


def decoded(gauge: LimitGauge, num_tok: int) -> TraceWriter:
    """Decodes that many tokens under the gauge; returns what was recorded."""
    engine = gauge._engine
    logits = engine.decoder.prefill(prompt_of(7), lambda done_tok: None)
    gauge.begin()
    writer = engine.state.recorder
    assert writer is not None
    for _ in engine.decoder.force([int(logits.argmax())] * num_tok):
        pass
    return writer


def test_a_slow_link_is_the_limit_and_a_fast_one_is_not(gauge: LimitGauge) -> None:
    engine = gauge._engine
    for rate, limit in ((1e3, "copies"), (1e15, "compute")):
        engine.decoder.cache.reset()
        engine.link.emulated_bytes_per_s = None
        writer = decoded(gauge, 8)
        engine.link.emulated_bytes_per_s = rate
        loads = belady_pool_loads(writer.trace(), engine.cache.slots_per_layer, gauge._initial)
        gauge.stop()
        assert engine.state.recorder is None
        gauge.measure([500.0] * 8, is_exact=True)
        copies_ms = loads / 8 * max(at.expert_bytes for at in engine.loaded.plan.geometry.layers) / rate * 1000
        assert loads > 0
        expected = 500.0 / (copies_ms if limit == "copies" else gauge._floor.mean(7, 8))
        assert gauge.times_the_limit == pytest.approx(expected)
        assert gauge.estimate([500.0]) == pytest.approx(expected)


def test_no_decode_and_stand_ins_have_no_figure(gauge: LimitGauge) -> None:
    gauge.measure([1.0], is_exact=True)
    assert gauge.times_the_limit is None, "nothing was begun"
    decoded(gauge, 3)
    gauge.measure([], is_exact=True)
    assert gauge.times_the_limit is None, "one token has no time between tokens"
    gauge._engine.decoder.cache.reset()
    decoded(gauge, 3)
    gauge.measure([1.0] * 3, is_exact=False)
    assert gauge.times_the_limit is None
    assert gauge.estimate([]) is None
    assert gauge.estimate([5.0]) is None, "no answer was measured yet"


def test_an_answer_tells_it_and_the_panels_tell_an_estimate_from_it(tiny_folder: TinyFolder) -> None:
    with TinyBench(tiny_folder("qwen3_moe")) as bench:
        stats = bench.ask(words(3, 9), max_new_tok=12).end.stats
        assert stats.times_the_limit is not None
        assert stats.times_the_limit > 0
        last = bench.snapshots[-1].timing
        assert (last.times_the_limit, last.is_limit_estimate) == (stats.times_the_limit, False)
        assert bench.engine.compute_floor_ms > 0


def test_no_answer_is_quicker_than_the_limit(gauge: LimitGauge) -> None:
    floor_ms = gauge._engine.compute_floor_ms
    decoded(gauge, 4)
    gauge._engine.link.emulated_bytes_per_s = 1e15
    gauge.measure([floor_ms / 4, floor_ms / 2, floor_ms / 4, floor_ms / 4], is_exact=True)
    assert gauge.times_the_limit == pytest.approx(1.25), "a calibration on a busy machine was too slow"
    assert gauge.estimate([floor_ms / 8]) == pytest.approx(1.0)


def test_no_more_is_recorded_than_the_bound_is_found_over(gauge: LimitGauge) -> None:
    gauge._max_tok = 3
    decoded(gauge, 3)
    gauge.see()
    assert gauge._engine.state.recorder is None
    gauge.measure([1e-3, 1e-3, 1e-3, 100.0], is_exact=True)
    assert gauge.times_the_limit is not None
    assert gauge.times_the_limit <= 1.0, "the fourth token is not part of it"


def test_an_answer_stopped_in_prefill_has_no_figure_of_the_one_before(tiny_folder: TinyFolder) -> None:
    with TinyBench(tiny_folder("qwen3_moe")) as bench:
        assert bench.ask(words(3, 9), max_new_tok=12).end.stats.times_the_limit is not None
        bench.is_cancelled = lambda: True
        stopped = bench.ask(words(40, 30), max_new_tok=12).end
        assert stopped.stats.new_tok == 0
        assert stopped.stats.times_the_limit is None
        assert stopped.stats.link_wait_ms is None
        assert bench.snapshots[-1].timing.times_the_limit is None


def test_calibrating_asks_nothing_of_the_cache(tiny_folder: TinyFolder) -> None:
    engine = open_model(tiny_folder("gpt_oss"))
    try:
        assert engine.compute_floor_ms > 0
        assert engine.cache.total_counters().routed == 0
        assert not engine.state.is_calibrating
        assert engine.decoder.cache.tokens == []
    finally:
        engine.close()


def test_a_long_context_is_compared_with_the_floor_of_a_long_context(gauge: LimitGauge) -> None:
    engine = gauge._engine
    engine.link.emulated_bytes_per_s = 1e15
    gauge._floor = ComputeFloor(((0, 10.0), (200, 210.0)), 256)
    figures = []
    for prompt_tok in (7, 130):
        engine.decoder.cache.reset()
        engine.decoder.prefill(prompt_of(prompt_tok), lambda done_tok: None)
        gauge.begin()
        for _ in engine.decoder.force([3] * 4):
            pass
        gauge.measure([420.0] * 4, is_exact=True)
        figures.append(gauge.times_the_limit)
    assert figures == [pytest.approx(42.0), pytest.approx(420 / 138)]
