"""The bench's noise-free model: its link keeps the rules of the real one, and its times are what arithmetic says."""

from __future__ import annotations

import numpy as np
import pytest

from engine.commands.bench.variants import Variant
from engine.commands.bench.virtual_run import StepTimes, VirtualRun
from engine.commands.bench.workload import Task
from offload.geometry import Geometry, LayerGeometry
from offload.link.expert_link import DEMAND, PREFETCH
from offload.replay.trace import NO_EXPERT, RoutingTrace
from offload.replay.virtual_link import VirtualClock, VirtualLink

MIB = 1 << 20
NOWHERE = memoryview(b"")
GEOMETRY = Geometry((LayerGeometry(0, 8, 2, 100),))


def test_demand_goes_before_prefetch_and_what_runs_is_finished_first() -> None:
    clock = VirtualClock()
    link = VirtualLink(clock, 100.0, GEOMETRY)
    running = link.submit(0, 1, NOWHERE, 100, PREFETCH)
    queued = link.submit(0, 2, NOWHERE, 100, PREFETCH)
    demanded = link.submit(0, 3, NOWHERE, 100, DEMAND)
    assert running.is_started
    assert not queued.is_started
    assert demanded.wait() == pytest.approx(2.0)
    assert running.is_done
    assert not queued.is_done
    assert queued.wait() == pytest.approx(1.0)
    assert clock.now_s == pytest.approx(3.0)


def test_a_queued_copy_is_promoted_or_taken_back_and_a_running_one_is_not() -> None:
    clock = VirtualClock()
    link = VirtualLink(clock, 100.0, GEOMETRY)
    running, first, second = (link.submit(0, expert, NOWHERE, 100, PREFETCH) for expert in range(3))
    link.promote(second)
    assert link.cancel(first)
    assert not link.cancel(running)
    assert second.wait() == pytest.approx(2.0)
    link.pass_time(5.0)
    later = link.submit(0, 4, NOWHERE, 100, PREFETCH)
    link.pass_time(0.5)
    assert later.wait() == pytest.approx(0.5), "an idle link starts at once"


def test_eta_is_that_of_the_demand_queue_even_for_a_prefetch() -> None:
    clock = VirtualClock()
    link = VirtualLink(clock, 100.0, GEOMETRY)
    running = link.submit(0, 0, NOWHERE, 100, DEMAND)
    prefetches = [link.submit(0, expert, NOWHERE, 100, PREFETCH) for expert in (1, 2)]
    demanded = link.submit(0, 3, NOWHERE, 100, DEMAND)
    link.pass_time(0.5)
    copies = (running, demanded, *prefetches)
    assert [link.demand_eta_s(copy) for copy in copies] == pytest.approx([0.5, 1.5, 2.5, 2.5])
    assert link.promote(prefetches[1])
    eta_s = link.demand_eta_s(prefetches[1])
    assert eta_s == pytest.approx(prefetches[1].wait())
    assert link.demand_eta_s(prefetches[1]) == 0.0


def make_task(rows: list[list[list[int]]], num_experts: int = 8, predicted: bool = True) -> Task:
    """`rows[step][layer]`: experts. Predictions are right, one layer and two layers ahead."""
    num_steps, num_layers, top_k = len(rows), len(rows[0]), len(rows[0][0])
    geometry = Geometry(tuple(LayerGeometry(i, num_experts, top_k, MIB) for i in range(num_layers)))
    ids = np.array(rows, np.uint16)
    trace = RoutingTrace(
        "m", "d", geometry, ids, np.full_like(ids, NO_EXPERT), None, np.zeros(num_steps, bool), np.array([0])
    )
    forecasts = [
        [{at: list(step[at]) for at in range(layer + 1, min(layer + 3, num_layers)) if predicted} for layer in range(3)]
        for step in rows
    ]
    return Task("d", [1], [1] * (num_steps + 1), trace, forecasts, [])


ROWS = [[[0, 1], [2, 3], [step % 8, (step + 1) % 8]] for step in range(8)]
"""The last layer wants one expert after the other that is not there."""
TIMES = StepTimes(layer_s=1.0, expert_s=0.25, token_s=4.0)
INITIAL = [[0, 1, 4], [2, 3, 4], [0, 1, 2]]


def tpot(variant: Variant, copies_per_s: float, task: Task | None = None) -> float:
    policies = variant.eviction, variant.prefetch, variant.depth
    run = VirtualRun(task or make_task(ROWS), policies, (3, 3, 3), INITIAL, copies_per_s * MIB, TIMES)
    seconds = run.tpot_s()
    run.cache.check_integrity()
    return seconds


def test_a_step_that_misses_nothing_takes_what_it_was_given() -> None:
    still = make_task([[[0, 1], [2, 3], [0, 1]]] * 4)
    assert tpot(Variant("lru", "none"), 1.0, still) == pytest.approx(4.0)


def test_without_prefetch_a_miss_costs_its_copy_less_what_is_computed_meanwhile() -> None:
    misses = 6  # experts 3, 4, ... in steps 2 to 7; the resident one's 0.25 s hide a part of each copy
    assert tpot(Variant("lru", "none"), 1.0) == pytest.approx(4.0 + misses * 0.75 / 8)


@pytest.mark.parametrize("name", ["router-ahead", "layers-ahead"])
def test_a_right_prediction_hides_a_copy_that_fits_into_a_layer(name: str) -> None:
    assert tpot(Variant("lru", name), 1.01) == pytest.approx(4.0)


def test_two_layers_ahead_hide_a_copy_that_one_layer_cannot() -> None:
    near, far = (tpot(Variant("lru", name), 0.55) for name in ("router-ahead", "layers-ahead"))
    assert far == pytest.approx(4.0)
    assert near > 4.1


def test_the_paper_s_floor_takes_no_copy_that_does_not_fit() -> None:
    assert tpot(Variant("lru", "router-ahead-floor"), 0.55) > tpot(Variant("lru", "router-ahead"), 0.55)
