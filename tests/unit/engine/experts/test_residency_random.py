"""Decode, prefetch, prefill by both paths, domains, modes, errors, stops in any order: nothing lost or miscounted."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from offload.counters import Counters
from offload.errors import ExpertReadError
from offload.link.link import Link
from offload.policies.eviction import EVICTION_POLICIES
from tests.unit.engine.experts.residency_machine import ResidencyMachine, Shape, Step
from tests.unit.engine.experts.wandering_link import Name, WanderingLink


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    num_layers = draw(st.integers(1, 3))
    num_experts = tuple(draw(st.integers(3, 7)) for _ in range(num_layers))
    top_k = tuple(draw(st.integers(1, min(3, experts))) for experts in num_experts)
    slots = tuple(draw(st.integers(k, experts)) for k, experts in zip(top_k, num_experts, strict=True))
    return Shape(
        num_experts,
        top_k,
        slots,
        is_shared=draw(st.booleans()),
        eviction=draw(st.sampled_from(EVICTION_POLICIES)),
        is_staged=draw(st.booleans()),
        seed=draw(st.integers(0, 2**16)),
    )


seeds = st.integers(0, 2**16)
stops = st.one_of(st.none(), st.none(), st.none(), st.integers(0, 12))
"""After how many looks at the cancel flag it is set."""


class Interleavings(RuleBasedStateMachine):
    """What a chat does to the experts' memory, in any order."""

    @initialize(shape=shapes())
    def begin(self, shape: Shape) -> None:
        self.machine = ResidencyMachine(shape, WanderingLink(shape.seed))

    @rule(seed=seeds, stop=stops)
    def decode_a_token(self, seed: int, stop: int | None) -> None:
        self.machine.stop_after(stop)
        self.machine.decode(random.Random(seed))

    @rule(seed=seeds, num_tok=st.sampled_from([1, 2, 3, 60]), stop=stops)
    def read_a_chunk_of_a_prompt(self, seed: int, num_tok: int, stop: int | None) -> None:
        self.machine.stop_after(stop)
        self.machine.prompt(random.Random(seed), num_tok)

    @rule(seed=seeds, stop=stops)
    def choose_a_domain(self, seed: int, stop: int | None) -> None:
        self.machine.stop_after(stop)
        self.machine.warm(random.Random(seed))

    @rule(num_moves=st.integers(1, 6))
    def the_link_goes_on(self, num_moves: int) -> None:
        for _ in range(num_moves):
            self.machine.log.link.move()

    @rule()
    def toggle_the_mode(self) -> None:
        self.machine.is_approx = not self.machine.is_approx

    @rule(layer=st.integers(0, 2), expert=st.integers(0, 6))
    def a_file_fails_or_is_well_again(self, layer: int, expert: int) -> None:
        self.machine.log.link.failing ^= {(layer, expert)}

    @invariant()
    def everything_agrees(self) -> None:
        if hasattr(self, "machine"):
            self.machine.check()

    def teardown(self) -> None:
        if hasattr(self, "machine"):
            self.machine.finish()


def explore(max_examples: int, stateful_step_count: int) -> None:
    phases = [phase for phase in Phase if phase is not Phase.explain]
    options = settings(max_examples=max_examples, stateful_step_count=stateful_step_count, deadline=None, phases=phases)
    run_state_machine_as_test(Interleavings, settings=options)


def test_any_interleaving() -> None:
    explore(150, 30)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_any_interleaving_at_length() -> None:
    explore(5000, 60)


class JitterySource:
    """Reads in two halves with a pause between them, and fails now and then."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def read_into(self, layer: int, expert: int, destination: memoryview) -> int:
        half, whole = len(destination) // 2, Name(layer, expert).content(len(destination))
        destination[:half] = b"\xff" * half
        time.sleep(self._chance.choice((0, 0, 1e-5, 2e-4)))
        if self._chance.random() < 0.02:
            raise ExpertReadError("now and then")
        destination[:half], destination[half:] = whole[:half], whole[half:]
        return len(destination)


class UnpredictableMachine(ResidencyMachine):
    """On a link with threads: nobody can tell beforehand who will have landed."""

    def _expect(self, layer: int, experts: Sequence[int], substitutes: dict[int, int]) -> Step:
        return Step()

    def _require_expected(self, layer: int, now: Counters) -> None:
        pass

    def _require_judged(self, layer: int, now: Counters) -> None:
        pass


def run_with_threads(seed: int, num_operations: int) -> None:
    chance = random.Random(seed)
    num_experts, top_k = [chance.randint(4, 7) for _ in range(3)], [chance.randint(1, 3) for _ in range(3)]
    slots = [chance.randint(k, experts) for k, experts in zip(top_k, num_experts, strict=True)]
    policies = chance.random() < 0.3, chance.choice(EVICTION_POLICIES), chance.random() < 0.5
    shape = Shape(tuple(num_experts), tuple(top_k), tuple(slots), *policies, seed)
    rate = chance.choice((None, 2e6))
    link = Link(JitterySource(seed), num_threads=chance.randint(1, 3), emulated_bytes_per_s=rate)
    machine = UnpredictableMachine(shape, link)
    try:
        for _ in range(num_operations):
            machine.is_approx = chance.random() < 0.3
            machine.stop_after(chance.randint(0, 6) if chance.random() < 0.15 else None)
            operation = chance.random()
            if operation < 0.75:
                machine.decode(chance)
            elif operation < 0.95:
                machine.prompt(chance, chance.choice((1, 2, 3, 60)))
            else:
                machine.warm(chance)
        machine.finish()
    finally:
        link.close()


@pytest.mark.parametrize("seed", range(6))
def test_the_same_with_threads(seed: int) -> None:
    run_with_threads(seed, 60)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_same_with_threads_at_length() -> None:
    for seed in range(100, 300):
        run_with_threads(seed, 200)
