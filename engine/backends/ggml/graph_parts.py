"""The pieces that layers' graphs are made of: products and norms with resident weights."""

from __future__ import annotations

from collections.abc import Callable

from engine.backends.ggml.graph import GraphBuilder, Tensor
from engine.backends.ggml.stored_weight import StoredWeight

Place = Callable[[StoredWeight], tuple[int, int]]
"""(address, format in memory) of a resident weight."""


class GraphParts:
    """Adds operations with one model's resident weights to graphs."""

    def __init__(self, place: Place, norm_eps: float) -> None:
        self._place, self._norm_eps = place, norm_eps

    def tensor(self, builder: GraphBuilder, weight: StoredWeight) -> Tensor:
        """The weight as it is in memory."""
        address, type_id = self._place(weight)
        return builder.new_at(address, type_id, *weight.shape)

    def norm(self, builder: GraphBuilder, rows: Tensor, weight: StoredWeight, norm_eps: float | None = None) -> Tensor:
        """Root-mean-square norm of every row, times the weight. `norm_eps`: None: the model's."""
        return builder.rms_norm(rows, self.tensor(builder, weight), self._norm_eps if norm_eps is None else norm_eps)

    def product(self, builder: GraphBuilder, weight: StoredWeight, rows: Tensor) -> Tensor:
        """weight [in, out], rows [in, n] -> float32 [out, n]."""
        return builder.product(self.tensor(builder, weight), rows)

    def projection(
        self, builder: GraphBuilder, weight: StoredWeight, bias: StoredWeight | None, rows: Tensor
    ) -> Tensor:
        """As `product`, plus the bias."""
        projected = self.product(builder, weight, rows)
        return projected if bias is None else builder.add(projected, self.tensor(builder, bias))
