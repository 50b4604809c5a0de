"""bf16, fp16 and fp32 experts: a slot holds the parameters one after another, as the experts module declares them.

Every operation is the one the library's `grouped_mm` experts function does on the same rows, so that results are equal
bit for bit: `mm` per expert, the module's own gate, routing weights applied, summed over k in top-k order in fp32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import nn

from engine.experts.formats.bound_slots import BoundSlots
from engine.experts.formats.sums import TopKSum, weighted_sum

DENSE_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
PARAMETER_NAMES = ("gate_up_proj", "up_proj", "gate_up_proj_bias", "up_proj_bias", "down_proj", "down_proj_bias")
"""The parameters an experts module holds per expert, by the names the experts interface gives them."""
_ALIGNMENT = 64
_NUM_TRIALS, _NUM_ROUNDS = 8, 6


class ParameterLayout(NamedTuple):
    """Where one expert's share of a parameter lies in its slot."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    slot_offset: int
    num_bytes: int


class DenseWeights(NamedTuple):
    """One expert's weights, oriented for `mm(rows, weight)`."""

    up: torch.Tensor
    up_bias: torch.Tensor | None
    down: torch.Tensor
    down_bias: torch.Tensor | None


class DenseFormat:
    """How the experts of one module lie in slots, and their arithmetic.

    `shapes` and `dtypes` are those of the module's per-expert parameters, without the expert dimension.
    """

    is_order_free = True

    def __init__(
        self, module: nn.Module, parameters: dict[str, tuple[tuple[int, ...], torch.dtype]], top_k: int
    ) -> None:
        self.module = module
        self.parameters: list[ParameterLayout] = []
        offset = 0
        for name in PARAMETER_NAMES:
            if name in parameters:
                shape, dtype = parameters[name]
                num_bytes = torch.Size(shape).numel() * dtype.itemsize
                self.parameters.append(ParameterLayout(name, shape, dtype, offset, num_bytes))
                offset += -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
        self.slot_bytes = offset
        self._has_gate: bool = module.has_gate  # type: ignore[assignment]
        self._has_bias: bool = module.has_bias  # type: ignore[assignment]
        self._has_norm: bool = module.has_post_expert_norm  # type: ignore[assignment]
        self._is_transposed: bool = module.is_transposed  # type: ignore[assignment]
        self._up_name = "gate_up_proj" if self._has_gate else "up_proj"
        up, down = parameters[self._up_name], parameters["down_proj"]
        output = 1 if self._is_transposed else 0
        self._dtype = up[1]
        self._up = torch.empty(top_k, up[0][output], dtype=up[1])
        self._down = torch.empty(top_k, down[0][output], dtype=down[1])
        self._up_rows, self._down_rows = self._up.split(1), self._down.split(1)
        self._up_vectors, self._down_vectors = self._up.unbind(0), self._down.unbind(0)
        self._matrices = [parameters[self._up_name][0], parameters["down_proj"][0]]
        self._takes_vectors = False

    def choose_kernel(self) -> None:
        """Decides between vector and matrix products, for the present number of threads."""
        self._takes_vectors = all(
            vector_product_pays(*shape, self._dtype, self._is_transposed, torch.get_num_threads())
            for shape in self._matrices
        )

    def bind(self, slot: memoryview) -> DenseWeights:
        """Views into `slot`, which is at least `slot_bytes` long."""
        views: dict[str, torch.Tensor] = {}
        whole = torch.frombuffer(slot, dtype=torch.uint8)
        for part in self.parameters:
            raw = whole[part.slot_offset : part.slot_offset + part.num_bytes]
            views[part.name] = raw.view(part.dtype).view(part.shape)
        up, down = views[self._up_name], views["down_proj"]
        if not self._is_transposed:
            up, down = up.t(), down.t()
        return DenseWeights(up, views.get(self._up_name + "_bias"), down, views.get("down_proj_bias"))

    def bind_slots(self, slots: Mapping[int, memoryview]) -> Mapping[int, DenseWeights]:
        """See ExpertFormat."""
        return BoundSlots(lambda number: self.bind(slots[number]))

    def sum_of(self, hidden: torch.Tensor, weights: torch.Tensor) -> TopKSum:
        """See ExpertFormat."""
        return TopKSum(self.run, hidden, weights)

    def _activate(self, projected: torch.Tensor) -> torch.Tensor:
        module: Any = self.module
        activated: torch.Tensor = module._apply_gate(projected) if self._has_gate else module.act_fn(projected)
        return activated

    def run(self, hidden: torch.Tensor, weights: DenseWeights) -> torch.Tensor:
        """One expert on rows: [tokens, hidden] -> [tokens, hidden]."""
        return self._normed(self._products(hidden, weights))

    def _products(self, hidden: torch.Tensor, weights: DenseWeights) -> torch.Tensor:
        projected = torch.mm(hidden.to(self._dtype), weights.up)
        if weights.up_bias is not None:
            projected.add_(weights.up_bias)
        out = torch.mm(self._activate(projected), weights.down)
        if weights.down_bias is not None:
            out.add_(weights.down_bias)
        return out

    def _normed(self, out: torch.Tensor) -> torch.Tensor:
        if not self._has_norm:
            return out
        module: Any = self.module
        normed: torch.Tensor = module.post_expert_norm(out)
        return normed

    def compute(self, hidden: torch.Tensor, weights: Sequence[DenseWeights], places: Sequence[int]) -> None:
        """See ExpertFormat. The preallocated rows keep the number of calls low."""
        k, token = len(weights), hidden.to(self._dtype)
        if self._takes_vectors:
            row = token[0]
            for expert, result in zip(weights, self._up_vectors, strict=False):
                torch.mv(expert.up.t(), row, out=result)
        else:
            for expert, result in zip(weights, self._up_rows, strict=False):
                torch.mm(token, expert.up, out=result)
        if self._has_bias:
            _add_biases([expert.up_bias for expert in weights], self._up_vectors)
        activated = self._activate(self._up if k == len(self._up) else self._up[:k])
        if self._takes_vectors:
            for expert, act, place in zip(weights, activated.unbind(0), places, strict=True):
                torch.mv(expert.down.t(), act, out=self._down_vectors[place])
        else:
            for expert, act, place in zip(weights, activated.split(1), places, strict=True):
                torch.mm(act, expert.down, out=self._down_rows[place])
        if self._has_bias:
            _add_biases([expert.down_bias for expert in weights], [self._down_vectors[place] for place in places])

    def compute_repeated(self, hidden: torch.Tensor, weights: DenseWeights, places: Sequence[int]) -> None:
        """See ExpertFormat."""
        self._down[list(places)] = self._products(hidden.repeat(len(places), 1), weights)

    def total(self, weights: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """See ExpertFormat."""
        num_places = weights.shape[1]
        rows = self._normed(self._down if num_places == len(self._down) else self._down[:num_places])
        return weighted_sum(rows, weights, dtype)

    def by_expert(self, index: torch.Tensor) -> dict[int, torch.Tensor]:
        """See ExpertFormat. Sorted as the library sorts, which with several threads leaves an expert's rows in no
        order: a row's place in a product can decide its last bit."""
        sorted_ids, permutation = torch.sort(index.reshape(-1))
        experts, counts = torch.unique_consecutive(sorted_ids, return_counts=True)
        return dict(zip(experts.tolist(), permutation.split(counts.tolist()), strict=True))

    def time_one(self, weights: DenseWeights, hidden_dim: int) -> float:
        """See ExpertFormat."""
        hidden = torch.zeros(1, hidden_dim)
        return _seconds(lambda: self.run(hidden, weights))


def _add_biases(biases: Sequence[torch.Tensor | None], rows: Sequence[torch.Tensor]) -> None:
    for bias, row in zip(biases, rows, strict=False):
        if bias is not None:
            row.add_(bias)


@cache
def vector_product_pays(
    num_rows: int, num_columns: int, dtype: torch.dtype, is_transposed: bool, num_threads: int
) -> bool:
    """Whether `mv` gives bit for bit what `mm` gives for one row of a weight of this shape on this machine, and sooner.

    Whether both sum in the same order is found out by eight random products of `num_columns` values. Which is quicker
    depends on the processor (with bf16 dot products `mm` is). Both may change with `num_threads`.
    """
    generator = torch.Generator().manual_seed(num_rows)
    products = []
    for _ in range(_NUM_TRIALS):
        weight = torch.randn(num_rows, num_columns, generator=generator).to(dtype)
        row = torch.randn(1, weight.shape[0 if is_transposed else 1], generator=generator).to(dtype)
        matrix = weight if is_transposed else weight.t()
        products.append((row, matrix))
    if not all(torch.equal(torch.mm(row, matrix)[0], torch.mv(matrix.t(), row[0])) for row, matrix in products):
        return False
    matrix_s = vector_s = float("inf")
    for _ in range(_NUM_ROUNDS):  # in turn, and the quickest counts: other processes slow both down
        matrix_s = min(matrix_s, _seconds(lambda: [torch.mm(row, matrix) for row, matrix in products]))
        vector_s = min(vector_s, _seconds(lambda: [torch.mv(matrix.t(), row[0]) for row, matrix in products]))
    return vector_s < matrix_s


def _seconds(work: Callable[[], object]) -> float:
    began_s = perf_counter()
    work()
    return perf_counter() - began_s
