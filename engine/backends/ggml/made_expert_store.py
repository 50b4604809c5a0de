"""Experts that are made of what is stored as they are read: into memory beside the slots, then into their slot."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from engine.backends.ggml.made_weights import stored_parts, write_made
from engine.backends.ggml.model_spec import LayerWeights, ModelSpec
from engine.backends.ggml.stored_weight import StoredWeight
from offload.link.expert_source import FileSource, Span, bounce_bytes
from offload.page_memory import page_buffer
from offload.slot_layout import direct_layout


def is_made(spec: ModelSpec) -> bool:
    """Whether experts are not stored as they lie in slots."""
    return any(weight.made for number in spec.moe_layers for weight in spec.layers[number].experts[0].stored())


def making_bytes(layer: LayerWeights) -> int:
    """Memory that a link thread takes beside slots: what is read of an expert, and as much again to rearrange it."""
    places = _read_layout(layer)
    return places.num_bytes + max(part.num_bytes for part in places.parts[0]) + bounce_bytes(_spans(places))


class _ReadLayout(NamedTuple):
    """Of one layer: what is read of each expert, where it goes in memory, and how much there is."""

    parts: list[list[StoredWeight]]
    offsets: tuple[int, ...]
    num_bytes: int


def _read_layout(layer: LayerWeights) -> _ReadLayout:
    parts = [stored_parts(expert.stored()) for expert in layer.experts]
    first, second = (parts * 2)[:2]
    stored = [
        (own.file_offset, own.num_bytes, then.file_offset - own.file_offset)
        for own, then in zip(first, second, strict=True)
    ]
    return _ReadLayout(parts, *direct_layout(stored))


def _spans(places: _ReadLayout) -> list[tuple[Span, ...]]:
    return [
        tuple(
            Span(part.path, part.file_offset, part.num_bytes, offset)
            for part, offset in zip(parts, places.offsets, strict=True)
        )
        for parts in places.parts
    ]


class MadeExpertStore:
    """An ExpertStore over a model's files."""

    def __init__(self, spec: ModelSpec, slot_offsets: Sequence[tuple[int, ...]], is_cached: bool) -> None:
        """`slot_offsets`: per MoE layer, where an expert's tensors begin in a slot. Opens the files, which `is_cached`
        leaves in the page cache. Raises ExpertReadError when one cannot be opened."""
        layers = [spec.layers[number] for number in spec.moe_layers]
        self._experts = [layer.experts for layer in layers]
        self._places, self._slot_offsets = [_read_layout(layer) for layer in layers], slot_offsets
        self._files = FileSource([_spans(places) for places in self._places], is_cached=is_cached)
        self._buffer_bytes = max(places.num_bytes for places in self._places)
        self._buffers: deque[memoryview] = deque()
        """Not in use: as many as there were ever threads reading at once."""

    @property
    def reads(self) -> str:
        """See ExpertStore."""
        return self._files.reads

    @property
    def num_direct_layers(self) -> int:
        """See ExpertStore: none, since every expert is made in memory beside the slots."""
        return 0

    def read_into(self, layer: int, expert: int, destination: memoryview) -> int:
        """See ExpertSource."""
        with self._buffer() as buffer:
            num_bytes = self._files.read_into(layer, expert, buffer)
            self._make(layer, expert, np.frombuffer(buffer, np.uint8), destination)
        return num_bytes

    def _make(self, layer: int, expert: int, read: np.ndarray, destination: memoryview) -> None:
        places, slot = self._places[layer], np.frombuffer(destination, np.uint8)
        found = {
            (part.path, part.file_offset): read[offset : offset + part.num_bytes]
            for part, offset in zip(places.parts[expert], places.offsets, strict=True)
        }
        weights = self._experts[layer][expert].stored()
        for weight, offset in zip(weights, self._slot_offsets[layer], strict=True):
            target = slot[offset : offset + weight.num_bytes]
            if weight.made is None:
                target[:] = found[weight.path, weight.file_offset]
            else:
                write_made(weight, [found[part.path, part.file_offset] for part in weight.made.parts], target)

    @contextmanager
    def _buffer(self) -> Iterator[memoryview]:
        try:
            buffer = self._buffers.pop()
        except IndexError:
            buffer = page_buffer(self._buffer_bytes)
        try:
            yield buffer
        finally:
            self._buffers.append(buffer)

    def close(self) -> None:
        """See ExpertStore."""
        self._files.close()
