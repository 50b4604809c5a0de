"""Where an expert's tensors lie in a slot, and with that what a model's experts take."""

from __future__ import annotations

from typing import Final, NamedTuple

from engine.backends.ggml.model_spec import LayerWeights, ModelSpec
from offload.geometry import Geometry, LayerGeometry, page_aligned_bytes
from offload.link.expert_source import Span
from offload.slot_layout import direct_layout

STAGING_SLOTS: Final = 16
"""A prompt's experts are fetched once, in the file's order: a ring that reads several at once, and into the next layer,
is as quick as two buffers of a layer, whose bytes are worth more as slots."""
_ALIGNMENT: Final = 32
"""Of every matrix in memory, as GGUF has it in files."""


class SlotLayout(NamedTuple):
    """Of one layer: where an expert's tensors begin in a slot, and the bytes of a slot."""

    offsets: tuple[int, ...]
    slot_bytes: int


def slot_layout(layer: LayerWeights) -> SlotLayout:
    """The layout of a MoE layer's slots. A tensor that is made as it is read begins at its region's first byte."""
    first, second = (layer.experts * 2)[:2]
    return SlotLayout(
        *direct_layout(
            [
                (own.file_offset, own.num_bytes, next_.file_offset - own.file_offset if own.made is None else 1)
                for own, next_ in zip(first.stored(), second.stored(), strict=True)
            ],
            _ALIGNMENT,
        )
    )


def geometry_of(spec: ModelSpec) -> Geometry:
    """The MoE layers' shapes; slots differ in size where layers are stored in different formats."""
    return Geometry(
        tuple(
            LayerGeometry(
                number,
                len(spec.layers[number].experts),
                spec.top_k,
                page_aligned_bytes(slot_layout(spec.layers[number]).slot_bytes),
            )
            for number in spec.moe_layers
        )
    )


def expert_spans(layer: LayerWeights) -> list[tuple[Span, ...]]:
    """Per expert of a MoE layer, where its tensors lie in files and in a slot."""
    offsets = slot_layout(layer).offsets
    return [
        tuple(
            Span(weight.path, weight.file_offset, weight.num_bytes, offset)
            for weight, offset in zip(expert.stored(), offsets, strict=True)
        )
        for expert in layer.experts
    ]
