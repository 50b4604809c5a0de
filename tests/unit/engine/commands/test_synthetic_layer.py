"""The synthetic layer of the overhead bench."""

import pytest

from engine.commands.bench.synthetic_layer import measure_layer_overhead
from offload.errors import WaitCancelled


def test_the_overhead_of_a_layer_is_measured_with_and_without_misses() -> None:
    overhead = measure_layer_overhead(lambda: False)
    assert 0 < overhead.all_resident_s < 1
    assert 0 < overhead.half_missing_s < 1


def test_it_can_be_stopped() -> None:
    with pytest.raises(WaitCancelled):
        measure_layer_overhead(lambda: True)
