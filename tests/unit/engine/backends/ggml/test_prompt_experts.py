"""Several experts in one graph give, bit for bit, what each gives alone, wherever their slots are."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.ggml.compute import Compute, Scratch
from engine.backends.ggml.expert_network import ExpertNetwork
from engine.backends.ggml.expert_slots import SlotLayout
from engine.backends.ggml.graph import row_bytes
from engine.backends.ggml.library import load_library
from engine.backends.ggml.memory import Memory
from engine.backends.ggml.model_spec import ExpertWeights
from engine.backends.ggml.prompt_experts import MAX_EXPERTS, MAX_ROWS, PromptExperts
from engine.backends.ggml.running_sum import RunningSum, SumLimits
from engine.backends.ggml.stored_weight import StoredWeight
from engine.backends.ggml.tensor_types import BF16, F16, F32, K_QUANTS, MXFP4, Q8_0

HIDDEN, INNER, NUM_SLOTS = 512, 256, 7
Q4_0 = 2


class Experts:
    """Random experts in a pool of slots."""

    def __init__(self, type_id: int) -> None:
        ggml = load_library()
        shapes = (HIDDEN, INNER), (HIDDEN, INNER), (INNER, HIDDEN)
        sizes = [row_bytes(ggml, type_id, num_in) * num_out for num_in, num_out in shapes]
        offsets = (0, sizes[0], sizes[0] + sizes[1])
        weights = [
            StoredWeight(name, type_id, shape, "", 0, size)
            for name, size, shape in zip(("gate", "up", "down"), sizes, shapes, strict=True)
        ]
        sample, slot_bytes = ExpertWeights(*weights), -(-sum(sizes) // 4096) * 4096
        self.memory = Memory(NUM_SLOTS * slot_bytes)
        self.addresses = [self.memory.address + slot * slot_bytes for slot in range(NUM_SLOTS)]
        random = np.random.default_rng(type_id)
        for address in self.addresses:
            for offset, (num_in, num_out) in zip(offsets, shapes, strict=True):
                values = (random.standard_normal((num_out, num_in)) / 16).astype(np.float32)
                ggml.quantize_chunk(type_id, values.ctypes.data, address + offset, 0, num_out, num_in, None)
        network = ExpertNetwork(sample, SlotLayout(offsets, slot_bytes), "silu")
        self.prompt = PromptExperts(ggml, Compute(ggml, 2), Scratch(ggml), network)


@pytest.mark.parametrize("type_id", [*K_QUANTS, MXFP4, Q4_0, Q8_0, F16, BF16, F32])
def test_in_one_graph_as_alone(type_id: int) -> None:
    experts = Experts(type_id)
    counts = [1, 40, 7, 3, 12]
    chosen = [experts.addresses[slot] for slot in (5, 1, 6, 0, 3)]
    hidden = np.random.default_rng(1).standard_normal((sum(counts), HIDDEN)).astype(np.float32)
    together = experts.prompt.run(hidden, list(zip(chosen, counts, strict=True)))
    alone, first = [], 0
    for address, count in zip(chosen, counts, strict=True):
        alone.append(experts.prompt.run(hidden[first : first + count], [(address, count)]))
        first += count
    assert np.array_equal(together, np.concatenate(alone))
    assert np.ptp(together) > 0


def test_what_does_not_fit_is_an_error() -> None:
    experts = Experts(Q8_0)
    hidden = np.zeros((MAX_ROWS + 1, HIDDEN), np.float32)
    slot = experts.addresses[0]
    for rows, wanted in (
        (hidden, [(slot, MAX_ROWS + 1)]),
        (hidden[:2], [(slot, 1)]),
        (hidden[:1], [(slot, 1), (slot, 0)]),
        (hidden[: MAX_EXPERTS + 1], [(slot, 1)] * (MAX_EXPERTS + 1)),
        (hidden[:1].astype(np.float64), [(slot, 1)]),
    ):
        with pytest.raises(ValueError, match="rows"):
            experts.prompt.run(rows, wanted)


def test_a_sum_does_not_depend_on_what_is_computed_at_once() -> None:
    random = np.random.default_rng(3)
    hidden = random.standard_normal((9, 4)).astype(np.float32)
    index = np.stack([random.permutation(6)[:2] for _ in hidden])
    index[4] = 3  # a router may choose an expert twice
    weights = random.random((9, 2)).astype(np.float32)
    calls: list[list[float]] = []

    def run(rows: np.ndarray, experts: object) -> np.ndarray:
        calls.append([factor for factor, _ in experts])  # type: ignore[attr-defined]
        factors = np.concatenate([np.full(count, factor, np.float32) for factor, count in experts])  # type: ignore[attr-defined]
        return rows * factors[:, None]

    def summed(limits: SumLimits, areas: int, flushes: bool) -> np.ndarray:
        total = RunningSum(run, lambda factor: int(factor) % areas, hidden, weights, limits)
        for expert in range(6):
            total.add(1 + expert, np.flatnonzero(index.reshape(-1) == expert))
            if flushes:
                total.flush()
        return total.result()

    expected = summed(SumLimits(100, 1), 1, flushes=True)
    for limits, areas, flushes in (
        (SumLimits(100, 100), 1, False),
        (SumLimits(5, 3), 2, False),
        (SumLimits(3, 2), 1, True),
    ):
        assert np.array_equal(summed(limits, areas, flushes), expected)
    calls.clear()
    summed(SumLimits(100, 100), 2, flushes=False)
    assert calls == [[1, 3, 5], [2, 4, 6]], "those of one area at once"
