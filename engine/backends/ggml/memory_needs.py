"""What a forward takes beside weights and slots, from shapes: the KV cache, graphs' memory, what prefill keeps."""

from __future__ import annotations

from engine.backends.ggml.compute import graph_bytes
from engine.backends.ggml.graph import GraphBuilder, Tensor
from engine.backends.ggml.kv_cache import PADDING_TOK, SeenRows, capacity_tok, kv_needs, ring_tok
from engine.backends.ggml.layer_graph import MAX_TENSORS, Addresses, LayerGraphBuilder
from engine.backends.ggml.library import Ggml
from engine.backends.ggml.model_spec import ModelSpec, StoredWeight
from engine.backends.ggml.prompt_experts import MAX_ROWS
from engine.backends.ggml.prompt_states import prompt_state_bytes
from engine.backends.ggml.recurrent_states import state_tensors
from engine.backends.ggml.tensor_types import F32
from engine.backends.ggml.weights import held_as_float32
from engine.plan.model_plan import ChunkNeeds, GrowingBytes

_MARGIN_BYTES = 24 << 20
"""For contexts of graphs, ggml's work memory beyond one chunk's rows, and what Python and the tokenizer hold."""
_ANY_ADDRESS = 4096


def chunk_needs(ggml: Ggml, spec: ModelSpec, chunk_tok: int, kv_type: int) -> ChunkNeeds:
    """For prefill chunks of `chunk_tok` tokens and a KV cache in the format `kv_type`."""
    chunk_tok = min(chunk_tok, spec.context_tok)
    graph = max(_graph_bytes(ggml, spec, number, chunk_tok, kv_type) for number in spec.layer_kinds())
    hidden, widest = spec.hidden_dim, _widest(spec)
    work = 4 * chunk_tok * widest
    """ggml holds a chunk's rows once more, in the format that a weight is multiplied with."""
    experts = 4 * MAX_ROWS * (4 * hidden + 3 * max(weight.shape[-1] for weight in _samples(spec)))
    masks_per_tok = 2 * (chunk_tok + 1)
    ring_masks = masks_per_tok * ring_tok(spec, spec.context_tok, chunk_tok)
    prompt_per_tok = prompt_state_bytes(spec) + 4 * hidden + 24 * spec.top_k
    """States, the experts' sum, and the routing of every token of a prompt."""
    logits = 12 * spec.vocabulary_tok
    forward = GrowingBytes(graph + work, masks_per_tok)
    fixed = forward.fixed_bytes + experts + logits + _MARGIN_BYTES + PADDING_TOK * masks_per_tok + ring_masks
    return ChunkNeeds(
        kv_needs(ggml, spec, chunk_tok, kv_type),
        GrowingBytes(fixed, masks_per_tok + prompt_per_tok),
        forward,
    )


def _samples(spec: ModelSpec) -> list[StoredWeight]:
    return [weight for number in spec.moe_layers for weight in spec.layers[number].experts[0].stored()]


def _widest(spec: ModelSpec) -> int:
    widths = [spec.hidden_dim, spec.heads.widest_dim, 0 if spec.delta is None else spec.delta.mixed_dim]
    widths += [layer.dense.down.shape[0] for layer in spec.layers if layer.dense is not None]
    return max(widths)


def _graph_bytes(ggml: Ggml, spec: ModelSpec, number: int, chunk_tok: int, kv_type: int) -> int:
    """Of what lives within one layer's graph. Built on addresses that are never read."""
    builder = GraphBuilder(ggml, MAX_TENSORS + 4, 1, MAX_TENSORS)
    try:
        cached, ring = capacity_tok(chunk_tok), ring_tok(spec, spec.context_tok, chunk_tok)
        tables = tuple(
            builder.new_at(_ANY_ADDRESS, kv_type, width, max(cached, ring)) for width in spec.heads.kv_widths
        )
        as_float32 = held_as_float32(spec)

        def held_type(weight: StoredWeight) -> int:
            return F32 if weight.name in as_float32 else weight.type_id

        kept: list[tuple[Tensor, ...]] = [tables] * len(spec.layers)
        if spec.delta is not None and number in spec.recurrent_layers:
            kept[number] = state_tensors(builder, spec.delta, _ANY_ADDRESS, _ANY_ADDRESS)
        layers = LayerGraphBuilder(spec, lambda weight: (_ANY_ADDRESS, held_type(weight)), kept)
        anywhere = _ANY_ADDRESS
        at = Addresses(anywhere, anywhere, anywhere, (), anywhere, anywhere, anywhere, anywhere, anywhere)
        outputs = layers.layer(builder, number, at, chunk_tok, SeenRows(cached, 0, ring))
        return graph_bytes(ggml, builder.graph(*outputs))
    finally:
        builder.close()
