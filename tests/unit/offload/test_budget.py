"""The byte budget: what is planned, what is refused."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload.budget import MIB, BudgetRequest, plan_budget
from offload.errors import BudgetError
from offload.geometry import Geometry, LayerGeometry
from offload.nonuniform_budget import with_moved_slots
from offload.policies.slot_planning.curve import HitRateCurve, mean_curves

GIB = 2**30


def uniform(num_layers=4, num_experts=16, top_k=2, expert_bytes=MIB):
    return Geometry(tuple(LayerGeometry(i, num_experts, top_k, expert_bytes) for i in range(num_layers)))


BASE = BudgetRequest(
    geometry=uniform(),
    memory_bytes=None,
    residency=None,
    runtime_bytes=10 * MIB,
    resident_bytes=20 * MIB,
    kv_bytes_per_tok=1024,
    kv_fixed_bytes=0,
    workspace_bytes=3 * MIB,
    staging_slots=2,
    context_tok=None,
    model_context_tok=4096,
    available_bytes=GIB,
)
"""Fixed parts: 35 MiB; 4 MiB of KV at 4096 tokens; 64 experts of 1 MiB in 4 layers."""

PAGES = 2 * 4096
"""One page to align each of the two pools."""


def plan(**changes):
    return plan_budget(replace(BASE, **changes))


def test_the_rest_goes_to_slots_the_same_share_for_all_layers():
    result = plan(memory_bytes=39 * MIB + 20 * MIB + PAGES)
    assert result.slots_per_layer == (5, 5, 5, 5)
    assert result.context_tok == 4096
    assert result.headroom_bytes == 0
    assert dict(result.parts) == {
        "runtime": 10 * MIB,
        "resident weights": 20 * MIB,
        "KV cache": 4 * MIB,
        "expert slots": 20 * MIB + 4096,
        "prefill staging": 2 * MIB + 4096,
        "workspace": 3 * MIB,
    }
    assert result.residency_rate == 20 / 64


def test_leftovers_go_one_by_one_from_layer_0():
    assert plan(memory_bytes=39 * MIB + 22 * MIB + PAGES).slots_per_layer == (6, 6, 5, 5)


def test_one_byte_short_of_a_slot_is_a_slot_less():
    assert plan(memory_bytes=39 * MIB + 22 * MIB + PAGES - 1).slots_per_layer == (6, 5, 5, 5)


def test_never_more_slots_than_experts_and_the_rest_is_headroom():
    result = plan(memory_bytes=200 * MIB)
    assert result.slots_per_layer == (16,) * 4
    assert result.budget_bytes == 200 * MIB
    assert result.headroom_bytes == 200 * MIB - result.total_bytes > 90 * MIB
    assert result.residency_rate == 1


def test_unequal_layers_get_the_same_share():
    geometry = Geometry((LayerGeometry(1, 8, 1, MIB), LayerGeometry(2, 16, 1, MIB)))
    assert plan(geometry=geometry, memory_bytes=39 * MIB + 12 * MIB + PAGES).slots_per_layer == (4, 8)


def test_a_default_context_is_the_models_own_up_to_8192():
    assert plan(model_context_tok=131072).context_tok == 8192
    assert plan(model_context_tok=300).context_tok == 300


def test_a_default_context_shrinks_to_keep_the_fewest_slots():
    result = plan(memory_bytes=35 * MIB + 12 * MIB + PAGES + MIB)
    assert result.context_tok == 1024
    assert result.slots_per_layer == (3,) * 4


def test_a_default_context_does_not_shrink_below_512():
    smallest = 35 * MIB + 12 * MIB + PAGES + MIB // 2
    assert plan(memory_bytes=smallest).context_tok == 512
    with pytest.raises(BudgetError) as caught:
        plan(memory_bytes=smallest - 1)
    assert caught.value.needed_bytes == 48 * MIB
    assert "--memory 48MiB" in caught.value.hint


def test_a_context_asked_for_is_honoured_or_refused():
    enough = 39 * MIB + 12 * MIB + PAGES
    assert plan(memory_bytes=enough, context_tok=4096).context_tok == 4096
    with pytest.raises(BudgetError, match="context of 4096 tokens") as caught:
        plan(memory_bytes=enough - 1, context_tok=4096)
    assert "shorter context" in caught.value.hint


@pytest.mark.parametrize("context_tok", [0, 4097])
def test_a_context_the_model_cannot_have_is_refused(context_tok):
    with pytest.raises(BudgetError, match="the model can have 1 to 4096"):
        plan(context_tok=context_tok)


def test_a_refusal_gives_the_split():
    with pytest.raises(BudgetError) as caught:
        plan(memory_bytes=MIB)
    for part in (
        "3 slots a layer",
        "runtime 10 MiB",
        "resident weights 20 MiB",
        "expert slots 13 MiB",
        "there are 1 MiB",
    ):
        assert part in caught.value.message


def test_a_budget_above_what_is_available_is_refused():
    with pytest.raises(BudgetError, match="1,024 MiB are available"):
        plan(memory_bytes=GIB + 1)
    assert plan(memory_bytes=GIB).budget_bytes == GIB


def test_a_machine_too_small_says_so_instead_of_advising_the_impossible():
    with pytest.raises(BudgetError) as caught:
        plan(available_bytes=30 * MIB)
    assert "--memory" not in caught.value.hint
    assert "30 MiB are available" in caught.value.hint


def test_without_a_setting_60_percent_or_everything():
    assert plan(available_bytes=100 * MIB).budget_bytes == 60 * MIB
    whole = plan()
    assert whole.slots_per_layer == (16,) * 4
    assert whole.budget_bytes == whole.total_bytes


def test_budget_and_residency_contradict_each_other():
    with pytest.raises(BudgetError, match="contradict"):
        plan(memory_bytes=GIB, residency=0.5)


@pytest.mark.parametrize(("residency", "slots"), [(1.0, 16), (0.5, 8), (0.2, 3), (0.16, 3)])
def test_residency_is_a_share_of_each_layer_and_the_budget_their_sum(residency, slots):
    result = plan(residency=residency)
    assert result.slots_per_layer == (slots,) * 4
    assert result.budget_bytes == result.total_bytes


@pytest.mark.parametrize("residency", [0.0, -0.5, 1.01])
def test_a_residency_that_is_no_share_is_refused(residency):
    with pytest.raises(BudgetError, match="residency"):
        plan(residency=residency)


def test_a_residency_of_too_few_slots_is_refused_with_the_smallest_that_works():
    with pytest.raises(BudgetError, match="2 slots a layer; the router picks 2") as caught:
        plan(residency=0.125)
    assert "--residency 15.7%" in caught.value.hint
    assert plan(residency=0.157).slots_per_layer == (3,) * 4


def test_a_residency_that_is_not_available_is_refused():
    with pytest.raises(BudgetError) as caught:
        plan(residency=1.0, available_bytes=90 * MIB)
    assert caught.value.needed_bytes > 90 * MIB


def test_everything_resident_in_a_layer_with_no_expert_to_spare():
    geometry = uniform(num_experts=2, top_k=2)
    assert plan(geometry=geometry, memory_bytes=39 * MIB + 8 * MIB + PAGES).slots_per_layer == (2,) * 4


layers = st.integers(1, 12).flatmap(
    lambda n: st.builds(LayerGeometry, st.just(0), st.just(n), st.integers(1, n), st.integers(1, 3 * MIB))
)
requests = st.builds(
    BudgetRequest,
    geometry=st.lists(layers, min_size=1, max_size=5).map(lambda shapes: Geometry(tuple(shapes))),
    memory_bytes=st.integers(0, 200 * MIB),
    residency=st.none(),
    runtime_bytes=st.integers(0, 10 * MIB),
    resident_bytes=st.integers(0, 10 * MIB),
    kv_bytes_per_tok=st.integers(0, 20_000),
    kv_fixed_bytes=st.integers(0, MIB),
    workspace_bytes=st.integers(0, MIB),
    staging_slots=st.integers(2, 4),
    context_tok=st.none() | st.integers(1, 1000),
    model_context_tok=st.integers(1000, 20_000),
    available_bytes=st.just(1000 * GIB),
)


def check_plan(request, result):
    assert result.total_bytes <= result.budget_bytes
    assert sum(num_bytes for _, num_bytes in result.parts) == result.total_bytes
    for slots, layer in zip(result.slots_per_layer, request.geometry.layers, strict=True):
        assert min(layer.top_k + 1, layer.num_experts) <= slots <= layer.num_experts
    if request.context_tok is not None:
        assert result.context_tok == request.context_tok


@given(requests)
def test_no_plan_overshoots_and_the_advice_of_a_refusal_works(request):
    try:
        result = plan_budget(request)
    except BudgetError as error:
        needed_bytes = error.needed_bytes
    else:
        needed_bytes = None
    if needed_bytes is not None:
        assert needed_bytes % MIB == 0
        assert needed_bytes > request.memory_bytes
        request = replace(request, memory_bytes=needed_bytes)
        result = plan_budget(request)
        with pytest.raises(BudgetError):
            plan_budget(replace(request, memory_bytes=needed_bytes - MIB))
    else:
        assert result.budget_bytes == request.memory_bytes
        if all(n < layer.num_experts for n, layer in zip(result.slots_per_layer, request.geometry.layers, strict=True)):
            assert result.headroom_bytes < max(layer.slot_bytes for layer in request.geometry.layers)
    check_plan(request, result)


@given(requests, st.floats(0.001, 1.0))
def test_a_residency_is_planned_or_refused_with_a_share_that_works(request, residency):
    request = replace(request, memory_bytes=None, residency=residency)
    try:
        result = plan_budget(request)
    except BudgetError as error:
        percent = float(re.search(r"([\d.]+)%", error.hint)[1])
        assert percent / 100 > residency
        request = replace(request, residency=percent / 100)
        result = plan_budget(request)
    check_plan(request, result)


@given(requests)
def test_more_memory_never_means_fewer_slots_or_less_context(request):
    try:
        result = plan_budget(request)
    except BudgetError:
        return
    more = plan_budget(replace(request, memory_bytes=request.memory_bytes + 5 * MIB))
    assert more.context_tok >= result.context_tok
    if more.context_tok == result.context_tok:
        assert more.slot_bytes >= result.slot_bytes


BUFFERS = 2 * 16 * MIB + 4096
"""Two buffers of a layer of 16 experts; the ring is 2 experts."""


def test_full_layers_are_staged_if_asked_for():
    result = plan(memory_bytes=37 * MIB + BUFFERS + 20 * MIB + 4096, layer_staging=True)
    assert result.has_layer_staging
    assert result.staging_bytes == BUFFERS
    assert result.slots_per_layer == (5, 5, 5, 5)
    with pytest.raises(BudgetError, match="prefill staging 33 MiB"):
        plan(memory_bytes=60 * MIB, layer_staging=True)


MANY = uniform(num_layers=30)
"""480 experts of 1 MiB."""


@pytest.mark.parametrize(
    ("changes", "is_staged", "slots", "why"),
    [
        ({"geometry": MANY, "residency": 0.25}, True, 4, "32 of 152 MiB, and 2k slots"),
        ({"geometry": MANY, "residency": 0.2}, False, 3, "fewer than 2k slots"),
        ({"geometry": uniform(), "residency": 0.75}, False, 12, "32 of 80 MiB"),
        ({"geometry": MANY, "residency": 1.0}, False, 16, "nothing is ever absent"),
        ({"geometry": uniform(num_layers=30, top_k=12), "residency": 0.85}, False, 14, "fewer than 16 of 16"),
        ({"geometry": MANY, "memory_bytes": 37 * MIB + BUFFERS + 120 * MIB + 4096}, True, 4, "just enough"),
        ({"geometry": MANY, "memory_bytes": 37 * MIB + 2 * MIB + 90 * MIB + PAGES}, False, 3, "just the ring"),
    ],
)
def test_full_layers_are_staged_if_affordable(changes, is_staged, slots, why):
    result = plan(layer_staging=None, **changes)
    assert result.has_layer_staging == is_staged, why
    assert result.slots_per_layer == (slots,) * len(changes["geometry"].layers)
    assert result.staging_bytes == (BUFFERS if is_staged else 2 * MIB + 4096)


def test_a_default_context_is_not_shortened_for_staging():
    geometry = uniform(num_layers=60, top_k=1)
    memory_bytes = 33 * MIB + BUFFERS + 2 * 60 * MIB + 4096
    for kv_bytes, is_staged in ((3 * MIB, False), (4 * MIB, True)):
        result = plan(geometry=geometry, memory_bytes=memory_bytes + kv_bytes, layer_staging=None)
        assert result.has_layer_staging == is_staged
        assert result.context_tok == 4096


@given(requests)
def test_whatever_is_staged_nothing_overshoots_and_nothing_is_refused_for_it(request):
    try:
        ring = plan_budget(request)
    except BudgetError:
        with pytest.raises(BudgetError):
            plan_budget(replace(request, layer_staging=None))
        return
    result = plan_budget(replace(request, layer_staging=None))
    check_plan(request, result)
    assert result.context_tok == ring.context_tok
    if result.has_layer_staging:
        assert 4 * result.staging_bytes <= result.staging_bytes + result.slot_bytes
    else:
        assert result == ring


def curves_of(geometry, *rates):
    return [HitRateCurve(at.top_k, np.array(rate)) for at, rate in zip(geometry.layers, rates, strict=True)]


def test_slots_moved_by_curves_cost_no_byte_more():
    rising, flat = np.linspace(0.3, 1.0, 15), np.full(15, 0.95)
    before = plan(residency=0.5)
    after = with_moved_slots(before, BASE.geometry, curves_of(BASE.geometry, flat, flat, flat, rising))
    assert sum(after.slots_per_layer) == sum(before.slots_per_layer)
    assert after.slots_per_layer[3] > 8
    assert after.total_bytes == before.total_bytes
    assert after.uniform_slots == before.slots_per_layer
    assert len(after.slot_moves) == after.slots_per_layer[3] - 8


@pytest.mark.parametrize(("is_staged", "fewest"), [(True, 4), (False, 3)])
def test_moving_leaves_what_staging_and_a_step_need(is_staged, fewest):
    rising, flat = np.linspace(0.0, 0.9, 15), np.full(15, 0.999)
    before = replace(plan(residency=0.375), has_layer_staging=is_staged)
    after = with_moved_slots(before, BASE.geometry, curves_of(BASE.geometry, rising, flat, flat, flat))
    assert after.slots_per_layer == (6 + 3 * (6 - fewest), fewest, fewest, fewest)


def test_a_mean_of_curves_is_taken_layer_by_layer():
    low, high = [HitRateCurve(2, np.array([0.2, 0.4]))], [HitRateCurve(2, np.array([0.4, 1.0]))]
    (mean,) = mean_curves([low, high])
    assert mean.first_slots == 2
    assert mean.rates == pytest.approx([0.3, 0.7])
    with pytest.raises(ValueError, match="no curves"):
        mean_curves([])


def test_files_stay_in_the_page_cache_only_where_they_are_small_and_no_budget_was_named():
    roomy = replace(BASE, available_bytes=GIB, residency=0.5)
    assert plan_budget(roomy).keeps_files_cached, "64 MiB of experts, a sixteenth of what is available"
    assert not plan_budget(replace(roomy, available_bytes=GIB - MIB)).keeps_files_cached
    assert not plan_budget(replace(roomy, residency=None, memory_bytes=200 * MIB)).keeps_files_cached
