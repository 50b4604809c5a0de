"""Slots moved by hit-rate curves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.geometry import Geometry, LayerGeometry
from offload.policies.slot_planning.curve import HitRateCurve
from offload.policies.slot_planning.nonuniform import MoveRules, plan_nonuniform

PAGE = 4096


def geometry(*expert_pages, num_experts=8, top_k=2):
    return Geometry(tuple(LayerGeometry(i, num_experts, top_k, pages * PAGE) for i, pages in enumerate(expert_pages)))


def curve(*rates, first_slots=2):
    return HitRateCurve(first_slots, np.array(rates))


FLAT = curve(0.80, 0.90, 0.90, 0.90, 0.92, 0.95, 1.0)
"""From 2 slots to 8: nothing is lost between 5 and 3."""
STEEP = curve(0.20, 0.30, 0.40, 0.60, 0.88, 0.95, 1.0)
MIDDLE = curve(0.60, 0.70, 0.80, 0.85, 0.90, 0.95, 1.0)


def test_a_curve_is_held_at_its_ends():
    assert [FLAT.at(slots) for slots in (0, 2, 3, 8, 99)] == [0.80, 0.80, 0.90, 1.0, 1.0]


def test_a_slot_moves_from_where_it_is_idle_to_where_it_is_missed():
    plan = plan_nonuniform(geometry(1, 1, 1), [4, 4, 4], [FLAT, STEEP, MIDDLE])
    assert plan.slots_per_layer == (3, 5, 4)
    (move,) = plan.moves
    assert (move.donor, move.receiver, move.donor_slots, move.receiver_slots) == (0, 1, 1, 1)
    assert (move.donor_rate_before, move.donor_rate_after) == (0.90, 0.90)
    assert (move.receiver_rate_before, move.receiver_rate_after) == (0.40, 0.60)
    assert move.median_rate == 0.80
    text = "layer 0 gives 1 (90.0% -> 90.0%) to layer 1, which gets 1 (40.0% -> 60.0%); median 80.0%"
    assert str(move) == text


def test_the_donor_that_loses_least_gives_and_equals_go_by_number():
    plan = plan_nonuniform(geometry(1, 1, 1, 1), [4, 4, 4, 4], [MIDDLE, STEEP, FLAT, FLAT])
    assert [move.donor for move in plan.moves] == [2, 3]
    assert plan.slots_per_layer == (4, 6, 3, 3)


def test_it_moves_in_steps_and_never_below_one_more_than_k():
    rules = MoveRules(delta_k=2)
    assert plan_nonuniform(geometry(1, 1, 1), [4, 4, 4], [FLAT, STEEP, MIDDLE], rules).moves == ()
    plan = plan_nonuniform(geometry(1, 1, 1), [5, 4, 4], [FLAT, STEEP, MIDDLE], rules)
    assert plan.slots_per_layer == (3, 6, 4)


@pytest.mark.parametrize(
    ("curves", "why"),
    [
        ([STEEP, STEEP, STEEP], "nobody is above the median and can give"),
        ([FLAT, MIDDLE, MIDDLE], "nobody is below it"),
        ([curve(0.5, 0.81, 0.95, 0.95, 0.95, 0.95, 1.0), STEEP, MIDDLE], "the donor would lose 14 %"),
        ([FLAT, curve(*[0.4] * 6, 1.0), MIDDLE], "the receiver would gain nothing"),
    ],
)
def test_no_move_without_a_reason(curves, why):
    assert plan_nonuniform(geometry(1, 1, 1), [4, 4, 4], curves).moves == (), why


def test_bytes_not_slots_are_what_is_kept():
    layers = geometry(2, 3, 1)
    plan = plan_nonuniform(layers, [5, 4, 4], [FLAT, STEEP, MIDDLE])
    (move,) = plan.moves
    assert (move.donor_slots, move.receiver_slots) == (2, 1), "two of 2 pages for one of 3"
    assert plan.slots_per_layer == (3, 5, 4)


def test_a_layer_gets_no_more_slots_than_it_has_experts():
    last = curve(*[0.1] * 6, 1.0)
    plan = plan_nonuniform(geometry(1, 1, 1), [5, 7, 5], [FLAT, last, FLAT], MoveRules(delta_k=4))
    assert plan.slots_per_layer[1] == 8


def test_impossible_rules_and_shapes_are_refused():
    for wrong in ({"delta_k": 0}, {"tau_low": -0.1}, {"max_drop": 2.0}):
        with pytest.raises(ValueError, match="impossible"):
            MoveRules(**wrong)
    with pytest.raises(ValueError, match="2 layers, 1 slot"):
        plan_nonuniform(geometry(1, 1), [4], [FLAT, FLAT])


rates = st.lists(st.floats(0, 1), min_size=7, max_size=7).map(lambda values: curve(*sorted(values)))
layer = st.tuples(st.integers(1, 4), st.integers(3, 8), rates)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(layer, min_size=1, max_size=8),
    st.builds(
        MoveRules, delta_k=st.integers(1, 3), tau_low=st.sampled_from([0, 0.02, 0.2]), max_drop=st.floats(0, 0.3)
    ),
)
def test_a_plan_keeps_its_bytes_and_its_word(layers, rules):
    shape = geometry(*[pages for pages, _, _ in layers])
    before = [slots for _, slots, _ in layers]
    curves = [rates for _, _, rates in layers]
    plan = plan_nonuniform(shape, before, curves, rules)

    def num_bytes(slots):
        return sum(n * at.slot_bytes for n, at in zip(slots, shape.layers, strict=True))

    def hits(slots):
        return sum(at.at(n) for at, n in zip(curves, slots, strict=True))

    assert num_bytes(plan.slots_per_layer) <= num_bytes(before)
    assert all(3 <= n <= 8 for n in plan.slots_per_layer)
    assert hits(plan.slots_per_layer) >= hits(before)
    assert plan_nonuniform(shape, before, curves, rules) == plan
    for move in plan.moves:
        assert move.donor_rate_after >= move.median_rate
        assert move.donor_rate_before - move.donor_rate_after <= rules.max_drop
        assert move.receiver_rate_before <= move.median_rate - rules.tau_low
        assert move.receiver_rate_after > move.receiver_rate_before
