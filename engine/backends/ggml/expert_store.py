"""Where every expert's bytes lie in files and in its slot, and how they are read: straight, as they are stored."""

from __future__ import annotations

from typing import NamedTuple

from engine.backends.ggml.model_spec import LayerWeights, ModelSpec
from offload.geometry import Geometry, LayerGeometry, page_aligned_bytes
from offload.link.expert_source import FileSource, Span

_ALIGNMENT = 64


class SlotLayout(NamedTuple):
    """Of one layer: where gate, up and down begin in a slot, and the bytes of a slot."""

    offsets: tuple[int, int, int]
    slot_bytes: int


def slot_layout(layer: LayerWeights) -> SlotLayout:
    """The layout of a MoE layer's slots."""
    offsets, end = [], 0
    for weight in layer.experts[0]:
        offsets.append(end)
        end += -(-weight.num_bytes // _ALIGNMENT) * _ALIGNMENT
    gate, up, down = offsets
    return SlotLayout((gate, up, down), end)


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


class GgmlExpertStore:
    """An ExpertStore over a model's files."""

    def __init__(self, spec: ModelSpec) -> None:
        """Opens the files. Raises ExpertReadError when one cannot be opened."""
        spans = []
        for number in spec.moe_layers:
            layer = spec.layers[number]
            offsets = slot_layout(layer).offsets
            spans.append(
                [
                    tuple(
                        Span(weight.path, weight.file_offset, weight.num_bytes, offset)
                        for weight, offset in zip(expert, offsets, strict=True)
                    )
                    for expert in layer.experts
                ]
            )
        self._num_layers = len(spans)
        self._files = FileSource(spans)

    @property
    def num_direct_layers(self) -> int:
        """See ExpertStore: all of them."""
        return self._num_layers

    def read_into(self, layer: int, expert: int, destination: memoryview) -> int:
        """See ExpertSource."""
        return self._files.read_into(layer, expert, destination)

    def close(self) -> None:
        """See ExpertStore."""
        self._files.close()
