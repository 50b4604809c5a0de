"""The host tier of a loaded checkpoint: for (layer, expert), which bytes go where in a slot.

Where the library's conversion only moves whole runs of bytes (gate and up put one after the other, a row of a fused
tensor), the runs are found once and read straight into the slot. Where it does more (another dtype, a transpose), the
expert is read, converted by the library and written to the slot, in the link's thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import nn

from engine.backends.transformers.stored_weights import StoredPart, WithheldModule, WithheldParameter
from engine.errors import MoeChatError
from engine.experts.formats.dense import DenseFormat, ParameterLayout
from offload.errors import ExpertReadError
from offload.link.expert_source import ExpertSource, FileSource, Span, bounce_bytes

_MAX_RUNS = 64


class Run(NamedTuple):
    """`num_elements` moved in one piece from a part to the parameter."""

    part: int
    first: int
    target: int
    num_elements: int


class RunFinder:
    """Finds where a conversion moves elements, by converting their positions; equal shapes are converted once."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._known: dict[object, list[Run] | None] = {}

    def runs(self, parameter: WithheldParameter, parts: Sequence[StoredPart]) -> list[Run] | None:
        """The runs, or None when the conversion is not a move of few runs."""
        if any(part.entry.dtype != parameter.dtype for part in parts):
            return None
        shapes = tuple((part.pattern, part.entry.shape, part.row is None) for part in parts)
        key = (id(parameter.converter), parameter.shape, shapes)
        if key not in self._known:
            self._known[key] = self._find(parameter, list(parts))
        return self._known[key]

    def _find(self, parameter: WithheldParameter, parts: list[StoredPart]) -> list[Run] | None:
        tensors, bounds, base = [], [], 0
        for part in parts:
            shape = part.entry.shape if part.row is None else (1, *part.entry.shape[1:])
            size = torch.Size(shape).numel()
            tensors.append(torch.arange(base, base + size, dtype=torch.int64).view(shape))
            bounds.append(base)
            base += size
        try:
            order = parameter.convert(tensors, parts, self._model)
        except Exception:  # noqa: BLE001 - what fails on positions is not a move: values are converted later
            return None
        if order.dtype != torch.int64 or tuple(order.shape) != parameter.shape:
            return None
        flat = order.reshape(-1)
        starts = [0, *((flat.diff() != 1).nonzero().flatten() + 1).tolist()]
        starts = sorted({*starts, *_positions(flat, bounds)})
        if len(starts) > _MAX_RUNS:
            return None
        runs = []
        for start, end in zip(starts, [*starts[1:], flat.numel()], strict=True):
            source = int(flat[start])
            part_number = max(i for i, bound in enumerate(bounds) if bound <= source)
            runs.append(Run(part_number, source - bounds[part_number], start, end - start))
        return runs


def _positions(flat: torch.Tensor, values: Sequence[int]) -> list[int]:
    return torch.isin(flat, torch.tensor(values)).nonzero().flatten().tolist()


def _spans(layout: ParameterLayout, parts: Sequence[StoredPart], runs: Sequence[Run]) -> list[Span]:
    size, spans = layout.dtype.itemsize, []
    for run in runs:
        entry, row = parts[run.part].entry, parts[run.part].row
        row_bytes = entry.num_bytes // entry.shape[0] if row is not None else 0
        offset = entry.file_offset + (row or 0) * row_bytes + run.first * size
        spans.append(Span(entry.path, offset, run.num_elements * size, layout.slot_offset + run.target * size))
    return spans


class ConvertingSource:
    """Experts whose stored bytes are not what a slot holds: read, converted by the library, written to the slot."""

    def __init__(self, model: nn.Module, modules: Sequence[WithheldModule], formats: Sequence[DenseFormat]) -> None:
        self._model, self._modules, self._formats = model, modules, formats

    def read_into(self, layer: int, expert: int, destination: memoryview) -> int:
        """Fills the slot; returns the bytes read. Raises ExpertReadError."""
        slot, moved = torch.frombuffer(destination, dtype=torch.uint8), 0
        for layout in self._formats[layer].parameters:
            parameter = self._modules[layer].parameters[layout.name]
            parts = parameter.parts[expert]
            try:
                value = parameter.convert([part.read() for part in parts], parts, self._model)
            except MoeChatError as error:
                raise ExpertReadError(error.message, error.hint) from error
            raw = slot[layout.slot_offset : layout.slot_offset + layout.num_bytes]
            raw.view(layout.dtype).view(layout.shape).copy_(value)
            moved += layout.num_bytes
        return moved


class ExpertPlaces(NamedTuple):
    """Where every expert's bytes are stored, in files."""

    spans: list[list[tuple[Span, ...] | None]]
    """By layer and expert: the runs of bytes that make up its slot; None: it must be converted."""
    conversion_bytes: int
    """What a link thread holds beside slots: while it converts the largest expert that must be, or for the ends of its
    reads."""


def find_places(model: nn.Module, modules: Sequence[WithheldModule], formats: Sequence[DenseFormat]) -> ExpertPlaces:
    """Finds the runs of every expert; opens no file. `model` may be on the meta device."""
    finder = RunFinder(model)
    spans = [
        [_expert_spans(finder, withheld, expert_format, expert) for expert in range(_num_experts(withheld))]
        for withheld, expert_format in zip(modules, formats, strict=True)
    ]
    converted = [
        _conversion_bytes(withheld, expert_format)
        for withheld, expert_format, layer in zip(modules, formats, spans, strict=True)
        if None in layer
    ]
    stored = bounce_bytes(expert for layer in spans for expert in layer if expert is not None)
    return ExpertPlaces(spans, max(converted, default=stored))


def _conversion_bytes(withheld: WithheldModule, expert_format: DenseFormat) -> int:
    """The stored tensors of an expert, and twice what they become: the library's operations copy."""
    parts = (part for parameter in withheld.parameters.values() for part in parameter.parts[0])
    return sum(part.num_elements * part.entry.dtype.itemsize for part in parts) + 2 * expert_format.slot_bytes


def _expert_spans(
    finder: RunFinder, withheld: WithheldModule, expert_format: DenseFormat, expert: int
) -> tuple[Span, ...] | None:
    spans: list[Span] = []
    for layout in expert_format.parameters:
        parameter = withheld.parameters[layout.name]
        runs = finder.runs(parameter, parameter.parts[expert])
        if runs is None:
            return None
        spans += _spans(layout, parameter.parts[expert], runs)
    return tuple(sorted(spans, key=lambda span: (span.path, span.file_offset)))


class ExpertStore:
    """An ExpertSource of a checkpoint: reads file spans straight into a slot where possible, else converts."""

    def __init__(
        self,
        model: nn.Module,
        modules: Sequence[WithheldModule],
        formats: Sequence[DenseFormat],
        places: ExpertPlaces,
        is_cached: bool = False,
    ) -> None:
        """Opens the files, which `is_cached` leaves in the page cache. Raises ExpertReadError when one cannot be
        opened."""
        self.converting = ConvertingSource(model, modules, formats)
        self._is_direct = [all(expert is not None for expert in layer) for layer in places.spans]
        spans = [[expert or () for expert in layer] for layer in places.spans]
        self._files = FileSource(spans, is_cached=is_cached)

    @property
    def reads(self) -> str:
        """How files are read, for a person: see FileSource."""
        return self._files.reads

    @property
    def num_direct_layers(self) -> int:
        """Layers whose experts are read straight into slots; the others are converted on the way."""
        return sum(self._is_direct)

    def read_into(self, layer: int, expert: int, destination: memoryview) -> int:
        """Fills a slot with one expert; called from link threads. Returns the bytes moved. Raises ExpertReadError."""
        source: ExpertSource = self._files if self._is_direct[layer] else self.converting
        return source.read_into(layer, expert, destination)

    def follower(self, layer: int, expert: int) -> int | None:
        """See RunSource."""
        return self._files.follower(layer, expert) if self._is_direct[layer] else None

    def read_run(self, layer: int, experts: Sequence[int], destinations: Sequence[memoryview]) -> list[int]:
        """See RunSource."""
        return self._files.read_run(layer, experts, destinations)

    def close(self) -> None:
        """Closes the checkpoint's files."""
        self._files.close()


def _num_experts(withheld: WithheldModule) -> int:
    return next(iter(withheld.parameters.values())).num_experts
