"""Decode and prefill over ggml graphs: a layer is one graph, then its routed experts.

Prefill goes layer by layer over the whole prompt, attention in chunks, so that an expert is fetched once per prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from engine.backends.decode_loop import DecodeLoop, require_finite
from engine.backends.ggml.compute import Compute, Scratch
from engine.backends.ggml.embedding import Embedding
from engine.backends.ggml.forward_inputs import ForwardInputs
from engine.backends.ggml.graph import GraphBuilder
from engine.backends.ggml.graph_parts import Place
from engine.backends.ggml.graph_run import run_once
from engine.backends.ggml.kv_cache import KvCache, SeenRows
from engine.backends.ggml.layer_graph import MAX_TENSORS, Addresses, Asked, LayerGraphBuilder
from engine.backends.ggml.library import Ggml
from engine.backends.ggml.lookahead import MAX_AHEAD, GgmlLookahead
from engine.backends.ggml.model_spec import ModelSpec
from engine.backends.ggml.prompt_forecast import PromptForecast
from engine.backends.ggml.prompt_states import PromptStates, chunks_of, num_experts_of
from engine.backends.ggml.routing import LogitsTap, Routing
from engine.backends.ggml.step_memory import StepMemory
from engine.backends.ggml.whole_step import WholeStep
from engine.experts.layer import MoeLayer
from engine.experts.step_state import StepState
from offload.errors import WaitCancelled


class GgmlDecoder(DecodeLoop):
    """Runs one model over one KV cache."""

    def __init__(
        self,
        ggml: Ggml,
        spec: ModelSpec,
        place: Place,
        embedding: Embedding,
        compute: Compute,
        scratch: Scratch,
        routings: Sequence[Routing],
        state: StepState,
        context_tok: int,
        chunk_tok: int,
        kv_type: int,
    ) -> None:
        """Allocates the KV cache, in the format `kv_type`, and the buffers of a step. `scratch`: for graphs that are
        built for one run."""
        super().__init__(state, context_tok)
        self._ggml, self._spec, self._compute, self._scratch = ggml, spec, compute, scratch
        self._embedding, self._chunk_tok = embedding, min(chunk_tok, context_tok)
        self.cache: KvCache = KvCache(ggml, spec, context_tok, self._chunk_tok, kv_type)
        self._graphs = LayerGraphBuilder(spec, place, self.cache.layers)
        self._forecast = PromptForecast(ggml, spec, routings, self._graphs, compute, scratch, self._chunk_tok)
        self._moe_number = {layer: number for number, layer in enumerate(spec.moe_layers)}
        self._routings = routings
        self.taps = [LogitsTap(routing) for routing in routings]
        self.layers: dict[int, MoeLayer] = {}
        """By MoE layer; without one the routed experts give zeros."""
        self.whole: WholeStep | None = None
        """Steps of which every expert is resident; None: experts have to be predicted, or arranged by the layer."""
        self._step_scratch = Scratch(ggml)
        self._allocate()
        self.ranks_in_graphs = all(routing.ranks_without_groups for routing in routings)
        """The layers' graphs choose the experts, and weigh them."""
        self.lookahead = GgmlLookahead(
            *(routings, self._token.logits[:1], self._results.next_logits),
            *(self._results.next_orders if self.ranks_in_graphs else None, self._ask_ahead),
        )
        self._step_builder: GraphBuilder | None = None
        self._step_graphs: list[int] = []
        self._head_graph = 0
        self._ahead_graphs: dict[int, int] = {}
        self._step_seen: SeenRows | None = None

    def _allocate(self) -> None:
        spec, chunk_tok = self._spec, self._chunk_tok
        self._token = PromptStates(spec, 1)
        self._embedding.keep_graph(self._token.residual_at)
        self._prompt: PromptStates | None = None
        self._step_inputs, self._chunk_inputs = ForwardInputs(self.cache, 1), ForwardInputs(self.cache, chunk_tok)
        self._results = StepMemory(spec, MAX_AHEAD)
        self._head_at = self._token.residual_at, self._results.logits_at
        self.expert_input = self._token.normed, self._token.normed_at, self._results.weights, self._results.weights_at
        """What experts are given in decode, float32 [1, hidden], and their weights, float32 [1, k], with the address of
        each: always the same memory."""

    # -- decode -------------------------------------------------------------------------------------------------------

    def ask_in_graphs(self, targets: Sequence[Sequence[int]]) -> None:
        """Each MoE layer asks the routers of its `targets`, later MoE layers, in its own graph."""
        self.lookahead.ask_in_graphs(targets)
        self._drop_step_graphs()

    def step(self, token: int) -> np.ndarray:
        """See DecodeLoop."""
        length, before = len(self.cache.tokens), self._state.substituted
        if length >= self._context_tok:
            raise ValueError("the context is full")
        self._state.is_decode = True
        if self._state.recorder is not None:
            self._state.recorder.begin(1, is_prefill=False)
        with self.cache.writing_one(length):
            logits = self._forward_token(token, length).copy()
            require_finite(logits, length + 1)
        self.cache.tokens.append(token)
        if self._state.substituted > before:
            self.cache.note_approximate(length)
        return logits

    def time_step(self, past_tok: int) -> int:
        """One step behind `past_tok` tokens of any content, for calibration; returns how many there were."""
        past_tok = min(past_tok, self._context_tok - 1)
        self._state.is_decode = True
        self._forward_token(0, past_tok)
        self.cache.reset()
        return past_tok

    def _forward_token(self, token: int, length: int) -> np.ndarray:
        """The logits [vocab] after one token, valid until the next call."""
        seen, states = self._step_inputs.write(length, 1), self._token
        self._embedding.read([token], states.residual_at)
        if (whole := self._whole_step()) is not None:
            if seen != whole.seen:
                whole.build(self._graphs, self._addresses(states, 0, self._step_inputs), self._head_at, seen)
            self._compute.run(whole.graph)
            if not self._state.is_calibrating:
                whole.tell(self.layers, self.taps)
            return self._results.logits
        if seen != self._step_seen:
            self._build_step_graphs(seen)
        for number, graph in enumerate(self._step_graphs):
            self._compute.run(graph)
            moe = self._moe_number.get(number)
            if moe is not None:
                self._experts_of_token(moe)
        self._compute.run(self._head_graph)
        return self._results.logits

    def _whole_step(self) -> WholeStep | None:
        """What computes this step in one graph, if it can."""
        whole, state = self.whole, self._state
        if whole is None or state.goes_by_layers:
            return None
        return whole if whole.is_ready(with_any_experts=state.is_calibrating) else None

    def drop_whole(self) -> None:
        """The slots are there no more. Safe to call twice."""
        if self.whole is not None:
            self.whole.close()
            self.whole = None

    def _experts_of_token(self, moe: int) -> None:
        """As `_experts`, of decode's token; what its graph chose is taken."""
        states, tap, layer = self._token, self.taps[moe], self.layers.get(moe)
        tap.logits = states.logits
        if layer is not None:
            chosen, weights = self._results.chosen, self._results.weights
            if not self.ranks_in_graphs:
                chosen, weights[:] = self._routings[moe].choose(states.logits)
            states.residual += layer(states.normed, chosen, weights)

    def _experts(self, moe: int, states: PromptStates, residual: np.ndarray, *, only_last: bool = False) -> None:
        """Routes all tokens of `states` and adds their experts' outputs to the residual; with `only_last` the last
        one's: nothing is computed from the others after the last layer."""
        tap, layer = self.taps[moe], self.layers.get(moe)
        tap.logits = states.logits
        if layer is not None:
            experts, weights = self._routings[moe].choose(states.logits)
            out = layer(states.normed, experts, weights, only_last=only_last)
            residual[-len(out) :] += out

    def _build_step_graphs(self, seen: SeenRows) -> None:
        self._drop_step_graphs()
        num_layers = len(self._spec.layers)
        sizes = (num_layers + 1) * MAX_TENSORS, 2 * num_layers + 1, MAX_TENSORS
        builder = self._step_builder = GraphBuilder(self._ggml, *sizes)
        at = self._addresses(self._token, 0, self._step_inputs)
        if self.ranks_in_graphs:
            own, *later = self._results.orders_at
            at = at._replace(order=own, weights=self._results.weights_at, next_orders=tuple(later))
        moe_layers = self._spec.moe_layers
        for number in range(num_layers):
            moe = self._moe_number.get(number)
            asked = [] if moe is None else self.lookahead.asked_by(moe)
            ahead = [Asked(moe_layers[target], mean_error) for target, mean_error in asked]
            self._step_graphs.append(builder.graph(*self._graphs.layer(builder, number, at, 1, seen, ahead)))
        self._head_graph = builder.graph(self._graphs.head(builder, *self._head_at))
        self._ahead_graphs = {
            moe: self._graphs.asks_ahead(builder, number, at) for moe, number in enumerate(moe_layers) if moe
        }
        self._step_scratch.allocate(*self._step_graphs, self._head_graph, *self._ahead_graphs.values())
        self._step_seen = seen

    def _drop_step_graphs(self) -> None:
        if self._step_builder is not None:
            self._step_builder.close()
        self._step_builder, self._step_graphs, self._step_seen = None, [], None

    def _ask_ahead(self, moe: int) -> None:
        self._compute.run(self._ahead_graphs[moe])

    # -- prefill ------------------------------------------------------------------------------------------------------

    def chunk_at(self, start: int, num_prompt_tok: int) -> int:
        """See DecodeLoop: all of it."""
        return num_prompt_tok - start

    def _prefill(self, prompt: Sequence[int], on_progress: Callable[[int], None]) -> np.ndarray:
        """See DecodeLoop. A prompt that is stopped leaves nothing behind of what was computed; where it wrote over a
        window or a recurrent state that the tokens before it need, the cache is emptied."""
        start, tokens = len(self.cache.tokens), list(prompt[len(self.cache.tokens) :])
        if not tokens or len(prompt) > self._context_tok:
            raise ValueError(f"{len(tokens)} tokens behind {start} in a context of {self._context_tok}")
        self._state.is_decode = False
        if self._state.recorder is not None:
            self._state.recorder.begin(len(tokens), is_prefill=True)
        try:
            with self._compute.stoppable(self._state.is_cancelled):
                logits = self._forward_prompt(tokens, start).copy()
            require_finite(logits, len(prompt))
        except BaseException:
            self._state.abandon_prefill()
            self.cache.keep_prefix(len(self.cache.tokens))
            raise
        finally:
            self._prompt = None
        self.cache.states.finish(len(prompt))
        self.cache.tokens.extend(tokens)
        on_progress(len(prompt))
        if self._state.is_cancelled():
            raise WaitCancelled("Stopped.")
        return logits

    def _forward_prompt(self, tokens: Sequence[int], start: int) -> np.ndarray:
        num_tok = len(tokens)
        states = self._prompt = PromptStates(self._spec, num_tok)
        self._embedding.read(tokens, states.residual_at)
        chunks = chunks_of(num_tok, self._chunk_tok, self.cache.states.begin_prompt(start, num_tok))
        for number in range(len(self._spec.layers)):
            for first, count in chunks:
                self._chunk(number, states, first, count, start)
                self.cache.states.seen(number, first + count)
                if self._state.is_cancelled():
                    raise WaitCancelled("Stopped.")
            moe = self._moe_number.get(number)
            if moe is not None:
                self._forecast.tell(moe + 1, self.layers.get(moe + 1), states)
                self._experts(moe, states, states.residual, only_last=number == len(self._spec.layers) - 1)
        self._token.residual[:] = states.residual[-1:]
        self._run_once(lambda builder: builder.graph(self._graphs.head(builder, *self._head_at)))
        return self._results.logits

    def _chunk(self, number: int, states: PromptStates, first: int, count: int, start: int) -> None:
        """One layer on `count` tokens of the prompt, from its `first` on; the prompt begins at position `start`."""
        seen = self._chunk_inputs.write(start + first, count)
        at = self._addresses(states, first, self._chunk_inputs)
        self._run_once(lambda builder: builder.graph(*self._graphs.layer(builder, number, at, count, seen)))

    def run_at(self, past_tok: int) -> int:
        """Every kind of layer's graph on one chunk behind `past_tok` tokens of any content, for measuring memory;
        returns the length it ran to. The cache is empty afterwards."""
        count = self._chunk_tok
        past_tok = min(past_tok, self._context_tok - count)
        states = PromptStates(self._spec, count)
        for number in self._spec.layer_kinds():
            self._chunk(number, states, 0, count, past_tok)
        self.cache.reset()
        return past_tok + count

    def _run_once(self, build: Callable[[GraphBuilder], int]) -> None:
        run_once(self._ggml, self._compute, self._scratch, MAX_TENSORS, build)

    def _addresses(self, states: PromptStates, first: int, inputs: ForwardInputs) -> Addresses:
        hidden, experts = self._spec.hidden_dim * 4, num_experts_of(self._spec) * 4
        return Addresses(
            residual=states.residual_at + first * hidden,
            normed=states.normed_at + first * hidden,
            logits=states.logits_at + first * experts,
            next_logits=self._results.next_logits_at,
            positions=inputs.positions_at,
            rows=inputs.rows_at,
            mask=inputs.mask_at,
            ring_rows=inputs.ring_rows_at,
            ring_mask=inputs.ring_mask_at,
        )

    def close(self) -> None:
        """Frees graphs and their memory. Safe to call twice."""
        self._drop_step_graphs()
        self.drop_whole()
        self._step_scratch.close()
        self._scratch.close()
        self._embedding.close()
