"""Counters, and what a light process may import."""

import subprocess
import sys
from pathlib import Path

import pytest

from offload.counters import Counters


def test_rates_are_none_without_data():
    nothing = Counters()
    assert (nothing.hit_rate, nothing.substituted_rate, nothing.availability_rate) == (None, None, None)


def test_rates():
    counters = Counters(
        routed=10, resident_hits=4, prefetched_hits=1, late=1, cold_misses=1, capacity_misses=1, substituted=2
    )
    assert (counters.hits, counters.misses) == (5, 2)
    assert (counters.hit_rate, counters.substituted_rate, counters.availability_rate) == (0.5, 0.2, 0.7)


def test_difference_undoes_sum():
    one, other = Counters(routed=3, late=3, substituted_mass=0.5), Counters(routed=2, resident_hits=2)
    assert Counters.total([one, other]) - other == one
    assert Counters.total([]) == Counters()


def test_a_snapshot_does_not_change_afterwards():
    counters = Counters(late=2, substituted_mass=0.5)
    snapshot = counters.snapshot()
    counters.late += 1
    assert snapshot == Counters(late=2, substituted_mass=0.5)


@pytest.mark.parametrize(
    ("modules", "unwanted"),
    [
        ("offload.counters, offload.errors, offload.budget, offload.residency.codes", ("torch", "numpy")),
        ("offload.policies.eviction, offload.policies.prefetch, offload.policies.substitution", ("torch", "numpy")),
        ("offload.policies.eviction.history, offload.policies.substitution.boundary", ("torch",)),
        ("offload.residency.cache, offload.link.staging", ("transformers", "engine", "app")),
    ],
)
def test_imports_stay_light(modules, unwanted):
    program = f"import {modules}, sys; print([m for m in {unwanted} if m in sys.modules])"
    root = Path(__file__).parents[3]
    run = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
