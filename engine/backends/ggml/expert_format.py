"""Experts in slots as their file stores them, computed by ggml straight out of the slot pool.

Decode: one product by slot numbers for every group of experts that is at hand. Prefill: each expert on all of its rows,
several experts at once. How rows are grouped follows from the routing alone, never from what is resident: a product of
several rows may differ in its last bits from products of single rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from time import perf_counter

import numpy as np

from engine.backends.ggml.compute import Compute, Scratch
from engine.backends.ggml.expert_network import MAX_TENSORS, ExpertNetwork, Slots
from engine.backends.ggml.expert_slots import SlotLayout
from engine.backends.ggml.graph import GraphBuilder, Tensor
from engine.backends.ggml.library import Ggml
from engine.backends.ggml.made_weights import in_pairs, takes_pairs
from engine.backends.ggml.memory import Memory, values
from engine.backends.ggml.model_spec import ExpertWeights
from engine.backends.ggml.prompt_experts import MAX_EXPERTS, MAX_ROWS, PromptExperts
from engine.backends.ggml.running_sum import RunningSum, SumLimits
from engine.backends.ggml.tensor_types import F32, I32
from engine.experts.formats.bound_slots import BoundSlots
from offload.page_memory import address_of


class GgmlFormat:
    """How one MoE layer's experts lie in slots. Not thread-safe."""

    is_order_free = False

    def __init__(
        self,
        ggml: Ggml,
        compute: Compute,
        scratch: Scratch,
        sample: ExpertWeights,
        layout: SlotLayout,
        top_k: int,
        activation: str,
    ) -> None:
        """`sample`: any expert of the layer. `scratch` is shared with graphs that are given memory for every run."""
        self._ggml, self._compute, self._scratch = ggml, compute, scratch
        self._network, self.slot_bytes = ExpertNetwork(sample, layout, activation), layout.slot_bytes
        self.parts = self._network.parts
        self._prompt = PromptExperts(ggml, compute, scratch, self._network)
        self._takes_pairs = takes_pairs(sample.gate)
        hidden_dim = sample.gate.shape[0]
        memory = self._memory = Memory((2 * top_k + 2) * hidden_dim * 4 + 2 * top_k * 4 + 4096)
        self._input_at, raw = memory.take(hidden_dim * 4)
        self._input = values(raw, np.float32, 1, hidden_dim)
        self._ids_at, raw = memory.take(top_k * 4)
        self._ids = memoryview(raw)  # type: ignore[arg-type]  # numpy's stubs know buffers from Python 3.12 on
        self._write_ids = [Struct(f"={count}i").pack_into for count in range(1, top_k + 1)]
        self._result_at, raw = memory.take(top_k * hidden_dim * 4)
        self._result = values(raw, np.float32, top_k, hidden_dim)
        self._gathered_at, raw = memory.take(top_k * hidden_dim * 4)
        self._gathered = values(raw, np.float32, top_k, hidden_dim)
        """The token's outputs in top-k order, of several products."""
        self._total_at, raw = memory.take(hidden_dim * 4)
        self._total = values(raw, np.float32, 1, hidden_dim)
        self._weights_at, raw = memory.take(top_k * 4)
        self._weights = values(raw, np.float32, 1, top_k)
        self._top_k = top_k
        self._all_places = list(range(top_k))
        self._is_total = False
        """The last product was one of all k, and wrote their sum."""
        self._builder: GraphBuilder | None = None
        self._graphs: list[int] = []
        self._slots = Slots(0, self.slot_bytes, 0)

    def take_input_from(self, hidden: np.ndarray, hidden_at: int, weights: np.ndarray, weights_at: int) -> None:
        """Decode's input, float32 [1, hidden], and the weights of a token's experts, float32 [1, k], lie at these
        addresses: given as these arrays they need not be copied. Call before `bind_slots`."""
        if not self._takes_pairs:
            self._input, self._input_at = hidden, hidden_at
        self._weights, self._weights_at = weights, weights_at

    def choose_kernel(self) -> None:
        """See ExpertFormat. ggml chooses by itself."""

    def bind(self, slot: memoryview) -> int:
        """The address of the slot."""
        return address_of(slot)

    def bind_slots(self, slots: Mapping[int, memoryview]) -> Mapping[int, int]:
        """See ExpertFormat. Builds the decode graphs over these slots, which must be equally spaced."""
        addresses = [self.bind(slot) for slot in slots.values()]
        stride = addresses[1] - addresses[0] if len(addresses) > 1 else self.slot_bytes
        self._slots = Slots(addresses[0], stride, len(addresses))
        if any(address != addresses[0] + i * stride for i, address in enumerate(addresses)):
            raise ValueError("the slots of a layer are not equally spaced")
        if self._builder is not None:
            self._builder.close()
        self._builder = GraphBuilder(self._ggml, 24 + MAX_TENSORS * self._top_k, self._top_k + 1, MAX_TENSORS)
        self._graphs = [self._decode_graph(self._builder, count) for count in range(1, self._top_k + 1)]
        self._graphs.append(self._sum_graph(self._builder))
        return BoundSlots(lambda number: self.bind(slots[number]))

    def sum_of(self, hidden: np.ndarray, weights: np.ndarray) -> RunningSum:
        """See ExpertFormat."""
        return RunningSum(self._run_all, self._is_in_slots, hidden, weights, SumLimits(MAX_ROWS, MAX_EXPERTS))

    def _is_in_slots(self, address: int) -> bool:
        return 0 <= self._number_of(address) < self._slots.num_slots

    def _run_all(self, hidden: np.ndarray, experts: Sequence[tuple[int, int]]) -> np.ndarray:
        return self._prompt.run(in_pairs(hidden) if self._takes_pairs else hidden, experts)

    @property
    def graphs(self) -> list[int]:
        """The decode graphs, which need memory for what lives within them."""
        return self._graphs

    @property
    def takes_input_as_it_is(self) -> bool:
        """Whether the experts' input needs no rearranging."""
        return not self._takes_pairs

    def of_token(self, builder: GraphBuilder, normed: Tensor, slots: Tensor, weights: Tensor) -> Tensor:
        """The weighted sum, float32 [hidden, 1], of the experts in `slots`, int32 [k, 1]: numbers among this layer's
        slots, which are not known here. normed [hidden, 1], weights [k, 1]. The bits are those of `compute` and
        `total`."""
        rows = builder.reshape(normed, self._network.hidden_dim, 1, 1)
        out = self._network.by_number(builder, self._slots, rows, slots)
        return self._weighted(builder, out, weights)

    def _weighted(self, builder: GraphBuilder, outputs: Tensor, weights: Tensor) -> Tensor:
        return builder.weighted_sum(builder.reshape(outputs, self._network.hidden_dim, self._top_k), weights)

    def _decode_graph(self, builder: GraphBuilder, count: int) -> int:
        ids = builder.new_at(self._ids_at, I32, count, 1)
        rows = builder.new_at(self._input_at, F32, self._network.hidden_dim, 1, 1)
        out = builder.placed(self._network.by_number(builder, self._slots, rows, ids), self._result_at)
        return builder.graph(out if count < self._top_k else self._sum(builder, out))

    def _sum_graph(self, builder: GraphBuilder) -> int:
        return builder.graph(self._sum(builder, builder.new_at(self._gathered_at, F32, *self._gathered.shape[::-1])))

    def _sum(self, builder: GraphBuilder, outputs: Tensor) -> Tensor:
        weights = builder.new_at(self._weights_at, F32, self._top_k, 1)
        return builder.placed(self._weighted(builder, outputs, weights), self._total_at)

    def _number_of(self, address: int) -> int:
        """Of a slot of this layer; negative, or too large, for another address."""
        return (address - self._slots.base) // self._slots.stride

    def compute(self, hidden: np.ndarray, weights: Sequence[int], places: Sequence[int]) -> None:
        """See ExpertFormat. Raises ValueError for an address that is no slot of this layer."""
        count = len(weights)
        numbers = [self._number_of(address) for address in weights]
        if min(numbers) < 0 or max(numbers) >= self._slots.num_slots:
            raise ValueError(f"no slots of this layer: {numbers}")
        if self._takes_pairs:
            self._input[:] = in_pairs(hidden)
        elif hidden is not self._input:
            self._input[:] = hidden
        self._write_ids[count - 1](self._ids, 0, *numbers)
        self._compute.run(self._graphs[count - 1])
        self._is_total = places == self._all_places
        if not self._is_total:
            self._gathered[places] = self._result[:count]

    def compute_repeated(self, hidden: np.ndarray, weights: int, places: Sequence[int]) -> None:
        """See ExpertFormat."""
        self.compute(hidden, [weights], places[:1])
        for place in places[1:]:
            self._gathered[place] = self._gathered[places[0]]

    def total(self, weights: np.ndarray, dtype: object) -> np.ndarray:
        """See ExpertFormat."""
        if weights is not self._weights:
            self._weights[:] = 0.0
            self._weights[:, : weights.shape[1]] = weights
            if self._is_total:
                self._gathered[:], self._is_total = self._result, False
            self._gathered[weights.shape[1] :] = 0.0
        if not self._is_total:
            self._compute.run(self._graphs[-1])
        return self._total

    def by_expert(self, index: np.ndarray) -> dict[int, np.ndarray]:
        """See ExpertFormat. Ascending."""
        flat = index.reshape(-1)
        order = np.argsort(flat, kind="stable")
        experts, starts = np.unique(flat[order], return_index=True)
        return dict(zip(experts.tolist(), np.split(order, starts[1:]), strict=True))

    def time_one(self, weights: int, hidden_dim: int) -> float:
        """See ExpertFormat."""
        hidden, began_s = np.zeros((1, hidden_dim), np.float32), perf_counter()
        self.run(hidden, weights)
        return perf_counter() - began_s

    def run(self, hidden: np.ndarray, weights: int) -> np.ndarray:
        """See ExpertFormat. At most MAX_ROWS rows."""
        return self._run_all(hidden, [(weights, len(hidden))])

    def close(self) -> None:
        """Frees the graphs. Safe to call twice."""
        if self._builder is not None:
            self._builder.close()
            self._builder = None
