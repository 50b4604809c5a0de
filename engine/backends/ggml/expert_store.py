"""How every expert's bytes are read from files into its slot: straight, as they are stored."""

from __future__ import annotations

from collections.abc import Sequence

from engine.backends.backend import ExpertStore
from engine.backends.ggml.expert_slots import expert_spans, slot_layout
from engine.backends.ggml.made_expert_store import MadeExpertStore, is_made, making_bytes
from engine.backends.ggml.model_spec import ModelSpec
from offload.link.expert_source import FileSource, bounce_bytes


def reading_bytes(spec: ModelSpec) -> int:
    """Memory that each link thread takes beside slots while it reads."""
    layers = [spec.layers[number] for number in spec.moe_layers]
    if is_made(spec):
        return max(making_bytes(layer) for layer in layers)
    return max(bounce_bytes(expert_spans(layer)) for layer in layers)


def open_expert_store(spec: ModelSpec, is_cached: bool) -> ExpertStore:
    """Opens the files, which `is_cached` leaves in the page cache. Raises ExpertReadError when one cannot be opened."""
    if not is_made(spec):
        return GgmlExpertStore(spec, is_cached)
    offsets = [slot_layout(spec.layers[number]).offsets for number in spec.moe_layers]
    return MadeExpertStore(spec, offsets, is_cached)


class GgmlExpertStore:
    """An ExpertStore over a model's files."""

    def __init__(self, spec: ModelSpec, is_cached: bool) -> None:
        """Opens the files, which `is_cached` leaves in the page cache. Raises ExpertReadError when one cannot be
        opened."""
        self._num_layers = len(spec.moe_layers)
        spans = [expert_spans(spec.layers[number]) for number in spec.moe_layers]
        self._files = FileSource(spans, may_fill_pages=True, is_cached=is_cached)

    @property
    def reads(self) -> str:
        """See ExpertStore."""
        return self._files.reads

    def follower(self, layer: int, expert: int) -> int | None:
        """See RunSource."""
        return self._files.follower(layer, expert)

    def read_run(self, layer: int, experts: Sequence[int], destinations: Sequence[memoryview]) -> list[int]:
        """See RunSource."""
        return self._files.read_run(layer, experts, destinations)

    def num_parts(self, layer: int, expert: int) -> int:
        """See PartSource."""
        return self._files.num_parts(layer, expert)

    def read_part(self, layer: int, expert: int, part: int, destination: memoryview) -> int:
        """See PartSource."""
        return self._files.read_part(layer, expert, part, destination)

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
