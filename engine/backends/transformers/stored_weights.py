"""Separates a checkpoint's tensors: routed experts, which are not loaded, and resident weights.

Every stored key is renamed with the library's own rules. For tensors of an experts module, only file, offset and shape
are kept, so that each expert can be read when it is needed; a test watches the signatures of the library used here.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

from engine.checkpoint.index import TensorEntry
from engine.errors import CheckpointError
from engine.experts.formats.dense import PARAMETER_NAMES

_EXPERT_NUMBER = re.compile(r"experts\.(\d+)\.")
_MISFIT = "A shard is missing, or the checkpoint does not fit its config.json; fetch both again."


class StoredPart(NamedTuple):
    """A stored tensor, or one row of a fused one, that an expert's parameter is made from."""

    entry: TensorEntry
    pattern: str | None
    """The converter's source pattern that matched."""
    row: int | None
    """Row of a fused tensor; None: the whole tensor is this expert's."""

    @property
    def num_elements(self) -> int:
        """Values in it."""
        return math.prod(self.entry.shape if self.row is None else self.entry.shape[1:])

    def read(self) -> torch.Tensor:
        """The part; a row keeps its leading dimension of 1."""
        return self.entry.read() if self.row is None else self.entry.read(self.row, 1)


@dataclass(slots=True)
class WithheldParameter:
    """A parameter of an experts module that was not loaded: its shape, and where each expert's share is stored."""

    target: str
    shape: tuple[int, ...]
    """Of one expert, without the expert dimension."""
    dtype: torch.dtype
    num_experts: int
    converter: WeightConverter | None = None
    parts: dict[int, list[StoredPart]] = field(default_factory=dict)

    def convert(self, tensors: list[torch.Tensor], parts: list[StoredPart], model: nn.Module) -> torch.Tensor:
        """The library's own conversion of one expert's stored tensors: the parameter's value, without expert
        dimension."""
        if self.converter is None:
            (tensor,) = tensors
            return tensor[0] if parts[0].row is not None else tensor
        converter = copy.deepcopy(self.converter)
        for part, tensor in zip(parts, tensors, strict=True):
            converter.add_tensor(self.target, part.entry.key, part.pattern, tensor)
        converted = converter.convert(self.target, model=model, config=model.config)[self.target]
        value: torch.Tensor = converted[0] if isinstance(converted, list) else converted
        return value[0]


@dataclass(slots=True)
class WithheldModule:
    """One experts module and its withheld parameters, by name."""

    name: str
    module: nn.Module
    parameters: dict[str, WithheldParameter]


def is_experts_module(module: nn.Module) -> bool:
    """Whether the class carries the library's experts interface."""
    return all(hasattr(module, flag) for flag in ("has_gate", "is_transposed", "num_experts", "_apply_gate"))


class StoredWeights(NamedTuple):
    """A checkpoint's tensors, separated into routed experts and resident weights."""

    modules: list[WithheldModule]
    """The experts modules, in the order of the model, with the places of their experts' bytes."""
    resident: dict[str, TensorEntry]
    """Every other stored tensor, by its key in the checkpoint."""

    def of_model(self, model: nn.Module) -> list[WithheldModule]:
        """The same places, for another instance of the same architecture."""
        return [replace(withheld, module=model.get_submodule(withheld.name)) for withheld in self.modules]


def sort_weights(
    model: PreTrainedModel, entries: Iterable[TensorEntry], mapping: Sequence[WeightRenaming | WeightConverter]
) -> StoredWeights:
    """Separates experts from resident weights. `model` may be on the meta device; `mapping` is the library's conversion
    mapping of its architecture. Raises CheckpointError where an expert, or a part of one, is missing or misshapen."""
    renamings = [rule for rule in mapping if isinstance(rule, WeightRenaming)]
    converters = [rule for rule in mapping if isinstance(rule, WeightConverter)]
    converter_of = {pattern: rule for rule in converters for pattern in rule.source_patterns}
    modules = [_declared(name, module) for name, module in model.named_modules() if is_experts_module(module)]
    owner = {parameter.target: parameter for withheld in modules for parameter in withheld.parameters.values()}
    expected, resident = model.state_dict(), {}
    for entry in entries:
        key, pattern = rename_source_key(entry.key, renamings, converters, model.base_model_prefix, expected)
        if key not in expected and entry.key in expected:
            key, pattern = rename_source_key(entry.key, [], [], model.base_model_prefix, expected)
        if key in owner:
            _add_parts(owner[key], entry, pattern, converter_of.get(pattern) if pattern else None)
        else:
            resident[entry.key] = entry
    _check_complete(modules)
    _check_shapes(modules, model)
    return StoredWeights(modules, resident)


def withhold(modules: Iterable[WithheldModule]) -> None:
    """Removes the experts' parameters from their modules, so that the library neither loads nor initialises them."""
    for withheld in modules:
        for name in withheld.parameters:
            withheld.module._parameters[name] = None
        withheld.module._is_hf_initialized = True  # type: ignore[assignment]


def _declared(name: str, module: nn.Module) -> WithheldModule:
    own = {key: value for key, value in module.named_parameters(recurse=False) if key in PARAMETER_NAMES}
    parameters = {
        key: WithheldParameter(f"{name}.{key}", tuple(value.shape[1:]), value.dtype, value.shape[0])
        for key, value in own.items()
    }
    return WithheldModule(name, module, parameters)


def _add_parts(
    parameter: WithheldParameter, entry: TensorEntry, pattern: str | None, converter: WeightConverter | None
) -> None:
    parameter.converter = converter
    number = _EXPERT_NUMBER.search(entry.key)
    if number is not None:
        parameter.parts.setdefault(int(number[1]), []).append(StoredPart(entry, pattern, None))
        return
    if not entry.shape or entry.shape[0] != parameter.num_experts:
        raise CheckpointError(
            f"{entry.key!r} has shape {list(entry.shape)}, where {parameter.num_experts} experts were expected.",
            _MISFIT,
        )
    for expert in range(parameter.num_experts):
        parameter.parts.setdefault(expert, []).append(StoredPart(entry, pattern, expert))


def _check_complete(modules: list[WithheldModule]) -> None:
    for withheld in modules:
        for parameter in withheld.parameters.values():
            wanted = math.prod(parameter.shape)
            if sorted(parameter.parts) != list(range(parameter.num_experts)):
                raise CheckpointError(
                    f"{parameter.target}: {len(parameter.parts)} experts are stored, where {parameter.num_experts} were"
                    " expected.",
                    _MISFIT,
                )
            for expert, parts in parameter.parts.items():
                if (stored := sum(part.num_elements for part in parts)) != wanted:
                    raise CheckpointError(
                        f"{parameter.target}: of expert {expert} {stored} values are stored, where {wanted} were"
                        " expected.",
                        _MISFIT,
                    )


def _check_shapes(modules: list[WithheldModule], model: PreTrainedModel) -> None:
    """Converts one expert of every stored shape on the meta device: what comes out must have the parameter's shape."""
    for withheld in modules:
        for parameter in withheld.parameters.values():
            examples = {
                tuple((part.pattern, part.entry.shape, part.row is None) for part in parts): (expert, parts)
                for expert, parts in parameter.parts.items()
            }
            for expert, parts in examples.values():
                found = _converted_shape(parameter, parts, model)
                if found != parameter.shape:
                    stored = ", ".join(f"{part.entry.key!r} {list(part.entry.shape)}" for part in parts[:3])
                    raise CheckpointError(
                        f"{parameter.target}: expert {expert} is stored as {stored}, which does not make the shape "
                        f"{list(parameter.shape)} that config.json asks for.",
                        _MISFIT,
                    )


def _converted_shape(
    parameter: WithheldParameter, parts: list[StoredPart], model: PreTrainedModel
) -> tuple[int, ...] | None:
    """None: the library cannot make the parameter of these parts."""
    shapes = [part.entry.shape if part.row is None else (1, *part.entry.shape[1:]) for part in parts]
    tensors = [
        torch.empty(shape, dtype=part.entry.dtype, device="meta") for shape, part in zip(shapes, parts, strict=True)
    ]
    try:
        return tuple(parameter.convert(tensors, parts, model).shape)
    except Exception:  # noqa: BLE001 - whatever an operation raises on shapes that do not fit
        return None
