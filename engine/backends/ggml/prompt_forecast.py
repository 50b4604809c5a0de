"""Which experts a later layer will probably be given for a prompt, before the layers in between are computed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.backends.ggml.compute import Compute, Scratch
from engine.backends.ggml.graph_run import run_once
from engine.backends.ggml.layer_graph import MAX_TENSORS, LayerGraphBuilder
from engine.backends.ggml.library import Ggml
from engine.backends.ggml.memory import Memory, values
from engine.backends.ggml.model_spec import ModelSpec
from engine.backends.ggml.prompt_states import PromptStates
from engine.backends.ggml.routing import Routing
from engine.experts.layer import MoeLayer


class PromptForecast:
    """Asks routers about many tokens at once."""

    def __init__(
        self,
        ggml: Ggml,
        spec: ModelSpec,
        routings: Sequence[Routing],
        graphs: LayerGraphBuilder,
        compute: Compute,
        scratch: Scratch,
        max_tok: int,
    ) -> None:
        """`max_tok`: of a prompt, so many are asked about, the last ones."""
        self._ggml, self._spec, self._routings, self._graphs = ggml, spec, routings, graphs
        self._compute, self._scratch, self._max_tok = compute, scratch, max_tok

    def tell(self, moe: int, layer: MoeLayer | None, states: PromptStates) -> None:
        """Tells the MoE layer of this number its forecast, if it takes one."""
        if layer is not None and layer.takes_forecast:
            logits = self._logits(self._spec.moe_layers[moe], states)
            layer.forecast(self._routings[moe].choose(logits)[0])

    def _logits(self, number: int, states: PromptStates) -> np.ndarray:
        """Of the router of layer `number` on the residuals as they are: float32 [tokens, experts]."""
        num_tok = len(states.residual)
        count = min(num_tok, self._max_tok)
        residual_at = states.residual_at + (num_tok - count) * 4 * self._spec.hidden_dim
        num_experts = len(self._spec.layers[number].experts)
        memory = Memory(4 * num_experts * count)
        run_once(
            *(self._ggml, self._compute, self._scratch, MAX_TENSORS),
            lambda builder: self._graphs.asks_for_prompt(builder, number, residual_at, count, memory.address),
        )
        return values(memory.bytes, np.float32, count, num_experts)
