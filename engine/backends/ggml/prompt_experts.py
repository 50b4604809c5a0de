"""Several experts of a prompt, each on rows of its own, as one graph.

Experts of some formats are computed by slot numbers, those of others one after the other: whichever is quicker. Either
way each expert's product is made of its own rows, and none of its bits depends on which others are in the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Final

import numpy as np

from engine.backends.ggml.compute import Compute, Scratch
from engine.backends.ggml.expert_network import MAX_TENSORS, ExpertNetwork, Slots
from engine.backends.ggml.graph import GraphBuilder, Tensor
from engine.backends.ggml.graph_run import run_once
from engine.backends.ggml.library import Ggml
from engine.backends.ggml.tensor_types import F32, I32, K_QUANTS, MXFP4

MAX_ROWS: Final = 256
"""Rows of one graph."""
MAX_EXPERTS: Final = 16
"""Experts of one graph. (128 of 12 rows each at Q4_K, 2 threads: 256 ms alone, 190 ms in sixteens.)"""
_MAX_SLOTS: Final = 2048
"""ggml keeps a table of rows for every slot that a number could mean."""
_BY_NUMBER: Final = frozenset({*K_QUANTS, MXFP4})
"""Formats with no quicker product of several rows than row by row: one product by numbers saves the threads' meetings.
(12 rows each: Q4_K 190 for 202 ms, Q6_K 255 for 319; but Q4_0 314 for 257, bfloat16 379 for 295.)"""


class PromptExperts:
    """Computes the experts of one MoE layer. Not thread-safe."""

    def __init__(self, ggml: Ggml, compute: Compute, scratch: Scratch, network: ExpertNetwork) -> None:
        """`scratch` is shared with graphs that are given memory for every run."""
        self._ggml, self._compute, self._scratch, self._network = ggml, compute, scratch, network
        self._is_by_number = all(part.type_id in _BY_NUMBER for part in network.parts if len(part.shape) > 1)

    def run(self, hidden: np.ndarray, experts: Sequence[tuple[int, int]]) -> np.ndarray:
        """hidden float32 [n, hidden]: rows of the first expert, of the second, ...; `experts`: the address of each
        one's slot, and how many rows are its own. At most MAX_ROWS rows, MAX_EXPERTS experts. -> float32 [n, hidden]"""
        hidden, out = np.ascontiguousarray(hidden), np.empty_like(hidden)
        counts = [count for _, count in experts]
        is_right = 0 < len(experts) <= MAX_EXPERTS and min(counts) > 0 and sum(counts) == len(hidden) <= MAX_ROWS
        if not is_right or hidden.dtype != np.float32:
            raise ValueError(f"{len(hidden)} rows of {hidden.dtype} for experts on {counts} rows")
        slots = _evenly_spaced([slot for slot, _ in experts], self._network.slot_bytes) if self._is_by_number else None
        ids = np.empty(0, np.int32)  # outlives the graph, which reads it
        if slots is not None:
            numbers = [(slot - slots.base) // slots.stride for slot, _ in experts]
            ids = np.repeat(np.array(numbers, np.int32), counts)

        def build(builder: GraphBuilder) -> int:
            if slots is not None:
                return builder.graph(self._by_number(builder, slots, hidden, ids, out))
            return builder.graph(*self._one_by_one(builder, experts, hidden, out))

        run_once(self._ggml, self._compute, self._scratch, MAX_TENSORS * len(experts), build)
        return out

    def _by_number(
        self, builder: GraphBuilder, slots: Slots, hidden: np.ndarray, ids: np.ndarray, out: np.ndarray
    ) -> Tensor:
        num_rows, hidden_dim = hidden.shape
        rows = builder.new_at(int(hidden.ctypes.data), F32, hidden_dim, 1, num_rows)
        numbers = builder.new_at(int(ids.ctypes.data), I32, 1, num_rows)
        return builder.placed(self._network.by_number(builder, slots, rows, numbers), int(out.ctypes.data))

    def _one_by_one(
        self, builder: GraphBuilder, experts: Sequence[tuple[int, int]], hidden: np.ndarray, out: np.ndarray
    ) -> list[Tensor]:
        outputs, first = [], 0
        for slot, count in experts:
            rows = builder.new_at(int(hidden[first:].ctypes.data), F32, hidden.shape[1], count)
            outputs.append(builder.placed(self._network.of_one(builder, slot, rows), int(out[first:].ctypes.data)))
            first += count
        return outputs


def _evenly_spaced(addresses: Sequence[int], slot_bytes: int) -> Slots | None:
    """The slots that these are some of, or None: they do not lie in one pool."""
    base = min(addresses)
    stride = gcd(*(address - base for address in addresses)) or slot_bytes
    count = (max(addresses) - base) // stride + 1
    return Slots(base, stride, count) if stride >= slot_bytes and count <= _MAX_SLOTS else None
