"""A decode step as one graph, for when every expert of every layer is in a slot: nothing is decided between layers.

Between two graphs of layers Python runs on cold caches, and threads are woken: a tenth of a step. The bits are those of
the step by layers: both add the same nodes, and experts are summed in top-k order in both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from engine.backends.ggml.compute import Scratch
from engine.backends.ggml.expert_format import GgmlFormat
from engine.backends.ggml.graph import GraphBuilder, Tensor
from engine.backends.ggml.kv_cache import SeenRows
from engine.backends.ggml.layer_graph import MAX_TENSORS, Addresses, LayerGraphBuilder
from engine.backends.ggml.library import Ggml
from engine.backends.ggml.memory import Memory, values
from engine.backends.ggml.model_spec import ModelSpec
from engine.backends.ggml.prompt_states import num_experts_of
from engine.backends.ggml.routing import LogitsTap
from engine.backends.ggml.tensor_types import F32, I32
from engine.experts.layer import MoeLayer
from engine.lookahead.prefetching import Prefetching
from offload.residency.cache import ExpertCache


def can_be_whole(formats: Sequence[GgmlFormat], cache: ExpertCache, prefetching: Prefetching) -> bool:
    """Whether all experts can be resident, and nothing has to be done between a step's layers when they are."""
    takes_all = all(each.takes_input_as_it_is for each in formats) and all(map(cache.holds_all, range(len(formats))))
    return takes_all and not any(prefetching.targets)


class WholeStep:
    """Of one configuration in which it can be; it ends with the slots."""

    def __init__(self, ggml: Ggml, spec: ModelSpec, cache: ExpertCache, formats: Sequence[GgmlFormat]) -> None:
        """Allocates what the graph writes of every layer, and the slots of its experts."""
        self._ggml, self._spec, self._cache, self._formats = ggml, spec, cache, formats
        layers, experts = len(spec.moe_layers), num_experts_of(spec)
        memory = self._memory = Memory(layers * (12 * experts + 4 * spec.top_k) + 4096)
        self._logits_at, raw = memory.take(4 * layers * experts)
        self._logits = values(raw, np.float32, layers, experts)
        """Per MoE layer, those of its router in the last step."""
        self._orders_at, raw = memory.take(4 * layers * experts)
        self._chosen = values(raw, np.int32, layers, experts)[:, : spec.top_k]
        """Per MoE layer, the experts of the last step, int32 [layers, k], the best first."""
        self._weights_at, _ = memory.take(4 * layers * spec.top_k)
        self._slots_at, raw = memory.take(4 * layers * experts)
        self._slots = values(raw, np.int32, layers, experts)
        """Per MoE layer and expert, the number of its slot among the layer's."""
        self._num_changes, self._is_ready = -1, False
        self._builder: GraphBuilder | None = None
        self._scratch = Scratch(ggml)
        self.seen: SeenRows | None = None
        """What the graph's attention reads; None: there is no graph."""
        self.graph = 0

    def is_ready(self, *, with_any_experts: bool = False) -> bool:
        """Whether every expert is resident now, and the graph knows where. `with_any_experts`: True; the next step
        computes with whatever is in the slots, for measuring."""
        if with_any_experts:
            self._num_changes = -1
            self._slots[:] = np.arange(self._slots.shape[1])
            return True
        if self._num_changes != self._cache.num_changes:
            self._num_changes, self._is_ready = self._cache.num_changes, self._find_slots()
        return self._is_ready

    def _find_slots(self) -> bool:
        """Writes where every expert is; False: not all are resident."""
        for layer, slots in enumerate(self._slots):
            first = self._cache.slots_of_layer(layer)[0]
            found = self._cache.slots_of_residents(layer)
            if min(found) < 0:
                return False
            slots[: len(found)] = np.array(found) - first
        return True

    def build(self, graphs: LayerGraphBuilder, at: Addresses, head_at: tuple[int, int], seen: SeenRows) -> None:
        """The graph of a step whose attention reads `seen`, in place of the last. `at`, `head_at`: where the graphs of
        a step by layers, and that of the head, read and write. Raises MemoryError."""
        self.drop()
        num_layers = len(self._spec.layers)
        moe_numbers = {number: moe for moe, number in enumerate(self._spec.moe_layers)}
        builder = self._builder = GraphBuilder(
            self._ggml, (num_layers + 1) * MAX_TENSORS, 1, (num_layers + 1) * MAX_TENSORS
        )
        outputs: list[Tensor] = []
        for number in range(num_layers):
            moe = moe_numbers.get(number)
            own = at if moe is None else self._addresses(at, moe)
            outputs += graphs.layer(builder, number, own, 1, seen)
            if moe is not None:
                outputs.append(self._experts(builder, own, moe))
        outputs.append(graphs.head(builder, *head_at))
        self.graph = builder.graph(*outputs)
        self._scratch.allocate(self.graph)
        self.seen = seen

    def _addresses(self, at: Addresses, moe: int) -> Addresses:
        row_bytes = 4 * self._slots.shape[1]
        return at._replace(
            logits=self._logits_at + row_bytes * moe,
            order=self._orders_at + row_bytes * moe,
            weights=self._weights_at + 4 * self._spec.top_k * moe,
        )

    def _experts(self, builder: GraphBuilder, at: Addresses, moe: int) -> Tensor:
        """Adds a layer's experts to the residual."""
        spec, top_k = self._spec, self._spec.top_k
        table = builder.new_at(self._slots_at + 4 * self._slots.shape[1] * moe, I32, 1, self._slots.shape[1])
        slots = builder.reshape(builder.read_rows(table, builder.new_at(at.order, I32, top_k)), top_k, 1)
        normed = builder.new_at(at.normed, F32, spec.hidden_dim, 1)
        summed = self._formats[moe].of_token(builder, normed, slots, builder.new_at(at.weights, F32, top_k, 1))
        residual = builder.new_at(at.residual, F32, spec.hidden_dim, 1)
        return builder.placed(builder.add(residual, summed), at.residual)

    def tell(self, layers: Mapping[int, MoeLayer], taps: Sequence[LogitsTap]) -> None:
        """Tells each layer, in their order, which experts the last step chose. Raises WaitCancelled."""
        for moe, experts in enumerate(self._chosen.tolist()):
            taps[moe].logits = self._logits[moe : moe + 1, : layers[moe].geometry.num_experts]
            layers[moe].computed_resident(experts)

    def drop(self) -> None:
        """Frees the graph; `build` makes another one. Safe to call twice."""
        if self._builder is not None:
            self._builder.close()
        self._builder, self.seen = None, None

    def close(self) -> None:
        """Frees the graph and its memory. Safe to call twice."""
        self.drop()
        self._scratch.close()
