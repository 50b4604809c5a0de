"""The MoE layer gives the library's bits, whoever is resident, late or named twice, and leaves the cache consistent."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
import torch

from offload.errors import ExpertReadError, WaitCancelled
from offload.policies.eviction import EVICTION_POLICIES
from tests.unit.engine.experts.layer_bench import LayerBench
from tests.unit.engine.experts.wandering_link import drain

KINDS = [
    {"dtype": torch.bfloat16},
    {"dtype": torch.bfloat16, "has_bias": True},
    {"dtype": torch.float16, "is_transposed": True},
    {"dtype": torch.float32},
    {"dtype": torch.float32, "has_bias": True, "is_transposed": True},
]


@pytest.fixture(autouse=True)
def _without_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield


def chosen(chance: random.Random, num_experts: int, top_k: int) -> list[int]:
    """A token's experts as a router without rules of its own may choose them: some of them several times."""
    if chance.random() < 0.5:
        return chance.sample(range(num_experts), top_k)
    return [chance.randrange(num_experts) for _ in range(top_k)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_decode_gives_the_librarys_bits(kind: dict[str, object], seed: int) -> None:
    chance = random.Random(seed)
    bench = LayerBench(num_experts=8, top_k=4, slots=chance.randint(4, 7), seed=seed, **kind)  # type: ignore[arg-type]
    for _ in range(40):
        if chance.random() < 0.5:
            bench.cache.prefetch(0, chance.sample(range(8), 2))
        for _ in range(chance.randint(0, 4)):
            bench.link.move()
        routed = chosen(chance, 8, 4)
        inputs = bench.inputs([routed])
        before = bench.cache.counters(0)
        assert torch.equal(bench.ours(*inputs), bench.theirs(*inputs)), routed
        bench.cache.check_integrity()
        assert (bench.cache.counters(0) - before).routed == len(set(routed))
        assert bench.layer.last_experts == routed


@pytest.mark.parametrize("kind", KINDS)
def test_so_does_prefill(kind: dict[str, object]) -> None:
    chance = random.Random(7)
    bench = LayerBench(num_experts=8, top_k=3, slots=4, **kind)  # type: ignore[arg-type]
    bench.fill([1, 4])
    for num_tok in (2, 3, 17):
        inputs = bench.inputs([chosen(chance, 8, 3) for _ in range(num_tok)])
        assert torch.equal(bench.ours(*inputs), bench.theirs(*inputs))
        bench.cache.check_integrity()
    assert bench.cache.counters(0).routed == 0


@pytest.mark.parametrize("resident", [[], [5], [5, 2]])
def test_an_expert_named_twice_is_one_load_and_two_shares(resident: list[int]) -> None:
    bench = LayerBench(top_k=3, slots=3)
    bench.fill(resident)
    loads_before = bench.cache.counters(0).loads
    inputs = bench.inputs([[5, 2, 5]])
    assert torch.equal(bench.ours(*inputs), bench.theirs(*inputs))
    counters = bench.cache.counters(0)
    assert (counters.routed, counters.resident_hits) == (2, len(resident))
    assert counters.loads - loads_before == counters.misses == 2 - len(resident)
    bench.cache.check_integrity()


def test_an_expert_on_its_way_named_twice_is_late_once() -> None:
    bench = LayerBench(top_k=3, slots=4)
    bench.fill([2])
    bench.cache.prefetch(0, [5])
    inputs = bench.inputs([[5, 5, 2]])
    assert torch.equal(bench.ours(*inputs), bench.theirs(*inputs))
    counters = bench.cache.counters(0)
    assert (counters.routed, counters.late, counters.prefetch_late, counters.resident_hits) == (2, 1, 1, 1)


def test_a_substitute_stands_in_once_for_an_expert_named_twice() -> None:
    bench = LayerBench(top_k=3, slots=5)
    bench.fill([0, 3, 4])
    bench.state.is_approx = True
    hidden, index, weights = bench.inputs([[1, 0, 1]])
    stood_in = bench.theirs(hidden, torch.tensor([[3, 0, 3]]), weights)
    assert torch.equal(bench.ours(hidden, index, weights), stood_in)
    counters = bench.cache.counters(0)
    assert (counters.routed, counters.substituted, counters.resident_hits) == (2, 1, 1)
    share = weights[0].float()
    assert counters.substituted_mass == pytest.approx(float((share[0] + share[2]) / share.sum()))
    assert bench.layer.last_substitutes == [3]
    bench.cache.check_integrity()


def test_what_a_router_masks_out_is_left_out() -> None:
    bench = LayerBench(top_k=3, slots=4)
    hidden, _, weights = bench.inputs([[8, 5, 2]])
    expected = bench.theirs(hidden, torch.tensor([[5, 2]]), weights[:, 1:])
    assert torch.equal(bench.ours(hidden, torch.tensor([[8, 5, 2]]), weights), expected)
    assert not bench.ours(hidden, torch.tensor([[8, 8, 8]]), weights).any(), "a token without experts gets zeros"
    bench.cache.check_integrity()


def test_resident_experts_are_one_group_and_landed_ones_another() -> None:
    """The overhead of a step is that of its groups, not of its experts."""
    bench = LayerBench(num_experts=12, top_k=8, slots=8)
    bench.fill(range(4))
    groups: list[int] = []
    compute = bench.format.compute

    def compute_and_note(hidden: torch.Tensor, weights: Sequence[Any], places: Sequence[int]) -> None:
        groups.append(len(weights))
        compute(hidden, weights, places)

    def land_everything(*args: object) -> float:
        drain(bench.link)
        return 0.0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.format, "compute", compute_and_note)
        patch.setattr("tests.unit.engine.experts.wandering_link.WanderingCopy.wait", land_everything)
        inputs = bench.inputs([[9, 0, 8, 1, 2, 10, 3, 11]])
        assert torch.equal(bench.ours(*inputs), bench.theirs(*inputs))
    assert groups == [4, 4]


# -- due in time, or substituted --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("eta_s", "is_substituted"), [(1.5, False), (2.5, True), (None, False)])
def test_an_arriving_expert_is_due_when_the_residents_are_computed(eta_s: float | None, is_substituted: bool) -> None:
    """Two of four experts are resident: it is due in two experts' compute, not in four."""
    bench = LayerBench(top_k=4, slots=6)
    bench.fill([0, 1, 7])
    bench.cache.prefetch(0, [2])
    bench.link.eta_s = eta_s
    bench.context.expert_compute_s = 1.0
    bench.state.is_approx = True
    bench.ours(*bench.inputs([[0, 1, 2, 2]]))
    counters = bench.cache.counters(0)
    assert (counters.substituted, counters.late) == (is_substituted, not is_substituted)


# -- errors and stops in the middle of a step -------------------------------------------------------------------------


@pytest.mark.parametrize("is_approx", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_failed_copies_and_stops_leave_everything_consistent(seed: int, is_approx: bool) -> None:
    chance = random.Random(seed)
    eviction = chance.choice(EVICTION_POLICIES)
    bench = LayerBench(num_experts=8, top_k=3, slots=chance.randint(3, 6), eviction=eviction, seed=seed)
    bench.state.is_approx = is_approx
    num_routed = num_ended = 0
    for _ in range(120):
        bench.link.failing = {(0, expert) for expert in chance.sample(range(8), chance.choice((0, 0, 1, 3)))}
        bench.stop_after(chance.randint(0, 3) if chance.random() < 0.3 else None)
        if chance.random() < 0.4:
            bench.cache.prefetch(0, chance.sample(range(8), 2))
        num_tok = chance.choice((1, 1, 1, 4))
        routing = [chosen(chance, 8, 3) for _ in range(num_tok)]
        inputs = bench.inputs(routing)
        num_routed += len(set(routing[0])) if num_tok == 1 else 0
        try:
            out = bench.ours(*inputs)
        except (ExpertReadError, WaitCancelled):
            bench.prefill.abandon()
            num_ended += 1
        else:
            assert is_approx or torch.equal(out, bench.theirs(*inputs))
        bench.cache.check_integrity()
        assert bench.cache.counters(0).routed == num_routed
        assert not bench.cache._layers[0].leases
    assert num_ended > 10
    bench.link.failing, bench.state.is_approx = set(), False
    bench.stop_after(None)
    inputs = bench.inputs([[0, 5, 7]])
    assert torch.equal(bench.ours(*inputs), bench.theirs(*inputs)), "it goes on afterwards"
    with suppress(ExpertReadError):
        drain(bench.link)
    bench.cache.settle(0)
    bench.cache.check_integrity()
