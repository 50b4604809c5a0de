"""A router in a graph: its logits, the experts in the order of their ranks, and the weights of a token's best."""

from __future__ import annotations

from engine.backends.ggml.graph import GraphBuilder, Tensor
from engine.backends.ggml.graph_parts import GraphParts
from engine.backends.ggml.model_spec import SIGMOID, SOFTMAX_OF_CHOSEN, LayerWeights, RouterSpec

_LEAST_SUM = 1e-20
"""Added to the sum that sigmoids are divided by."""


class RouterGraph:
    """Adds the nodes of one model's routers, those without groups. `top_k`: experts of a token."""

    def __init__(self, spec: RouterSpec, top_k: int, parts: GraphParts) -> None:
        self._spec, self._top_k, self._parts = spec, top_k, parts

    def logits(self, builder: GraphBuilder, weights: LayerWeights, rows: Tensor, address: int) -> Tensor:
        """Normed rows [hidden, n] -> float32 [experts, n] at `address`."""
        assert weights.router is not None, "of MoE layers alone"
        return builder.placed(self._parts.projection(builder, weights.router, weights.router_bias, rows), address)

    def order(self, builder: GraphBuilder, weights: LayerWeights, logits: Tensor, address: int) -> Tensor:
        """Of one token: int32 [experts, 1] at `address`, the best first."""
        ranked, bias = logits, weights.correction_bias
        if bias is not None:
            scores = builder.sigmoid(logits) if self._spec.scoring == SIGMOID else builder.softmax(logits)
            ranked = builder.add(scores, self._parts.tensor(builder, bias))
        return builder.placed(builder.descending(ranked), address)

    def chosen(self, builder: GraphBuilder, order: Tensor) -> Tensor:
        """The first k of an order: int32 [k, 1]."""
        return builder.view(order, (self._top_k, 1), builder.strides_of(order), 0)

    def weights(self, builder: GraphBuilder, logits: Tensor, order: Tensor, address: int) -> Tensor:
        """Of one token's chosen experts: float32 [k, 1] at `address`."""
        spec, chosen = self._spec, self.chosen(builder, order)
        is_of_chosen = spec.scoring == SOFTMAX_OF_CHOSEN or spec.normalises
        if spec.scoring == SIGMOID:
            weights = builder.sigmoid(self._of(builder, logits, chosen))
            if spec.normalises:
                weights = builder.divided(weights, builder.scaled(builder.row_sums(weights), 1.0, _LEAST_SUM))
        elif is_of_chosen:  # as the chosen ones' share in a softmax of all
            weights = builder.softmax(self._of(builder, logits, chosen))
        else:
            weights = builder.contiguous(self._of(builder, builder.softmax(logits), chosen))
        return builder.placed(builder.scaled(weights, spec.scale), address)

    @staticmethod
    def _of(builder: GraphBuilder, values: Tensor, chosen: Tensor) -> Tensor:
        """Of values [experts, 1] the chosen ones': [k, 1]."""
        rows = builder.read_rows(builder.reshape(values, 1, values.shape[0]), chosen)
        return builder.reshape(rows, *chosen.shape)
