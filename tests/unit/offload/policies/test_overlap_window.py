"""The overlap window, from measured times."""

import pytest

from offload.geometry import Geometry, LayerGeometry
from offload.policies.prefetch.overlap_window import OverlapWindow, Window

GEOMETRY = Geometry((LayerGeometry(0, 8, 2, 100), LayerGeometry(1, 8, 2, 200), LayerGeometry(3, 8, 2, 100)))


@pytest.mark.parametrize(
    ("known_s", "copy_s", "demand_s", "depth"),
    [
        (1.0, 0.5, 0.0, 2),
        (0.99, 0.5, 0.0, 1),
        (1.0, 0.5, 0.1, 1),
        (1.0, 1.1, 0.0, 0),
        (-0.1, 1.0, 0.0, 0),
        (1, 1, 9, 0),
    ],
)
def test_depth(known_s, copy_s, demand_s, depth):
    assert Window(known_s, (9.0,), (copy_s,), demand_s).depth_floor() == depth


def measured(**options):
    estimate = OverlapWindow(GEOMETRY, **options)
    for layer in range(3):
        estimate.observe_compute(layer, 1.0 + layer)
        estimate.observe_attention(layer, 0.25)
    estimate.observe_bandwidth(100.0)
    return estimate


def test_what_is_not_measured_is_not_guessed():
    estimate = OverlapWindow(GEOMETRY)
    estimate.observe_compute(0, 1.0)
    assert estimate.window(0) is None
    estimate.observe_attention(1, 0.25)
    assert estimate.window(0) is None
    estimate.observe_bandwidth(None)
    estimate.observe_bandwidth(0.0)
    assert estimate.window(0) is None
    estimate.observe_bandwidth(100.0)
    assert estimate.window(0, num_layers_ahead=4) == Window(1.25, (1.25,), (2.0,), 0.0)


def test_compute_of_this_layer_and_attention_of_the_next():
    window = measured(launch_overhead_s=0.05).window(0, demand_bytes=50, prefetch_bytes=200, num_layers_ahead=4)
    assert window.routing_known_s == pytest.approx((1.2, 1.2 + 2.25))
    assert window.copy_s == (2.0, 1.0)
    assert (window.demand_queued_s, window.prefetch_queued_s) == (0.5, 2.0)
    assert measured().window(1, num_layers_ahead=4) == Window(2.25, (2.25,), (1.0,), 0.0)
    assert measured().window(2) is None, "nothing comes after the last layer"


def test_one_pause_of_the_system_changes_nothing():
    estimate = measured()
    for seconds in (1.0, 1.1, 50.0, 0.9):
        estimate.observe_compute(0, seconds)
    assert estimate.window(0).routing_known_s == (1.25,)
    for _ in range(9):
        estimate.observe_compute(0, 2.0)
    assert estimate.window(0).routing_known_s == (2.25,), "but a change that stays is followed"


def test_a_layer_that_waits_for_its_own_copies_holds_up_the_next():
    estimate = measured(expert_compute_s=0.1)
    window = estimate.window(0, demand_bytes=300, num_layers_ahead=2)
    assert window.overlap_s == 1.25, "the paper's window is as if nobody waited"
    assert window.routing_known_s == pytest.approx((3.0 + 0.1 + 0.25, 3.35 + 2.25))
    assert estimate.window(0, demand_bytes=50).routing_known_s == (1.25,), "half a second is hidden by the compute"
