"""The one place that reaches into transformers' private parts: loading a model without its routed experts.

`PreTrainedModel._load_pretrained_model` is wrapped for the time of one `from_pretrained` call. The wrapper renames
every checkpoint key with the library's own rules; what belongs to an experts module goes into an index and is never
read, the rest is handed on as lazy tensors read by `preadv`. A canary test watches the signatures used here.
"""

from __future__ import annotations

import contextlib
import copy
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

from engine.checkpoint.index import TensorEntry, read_header
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


class LazyTensor:
    """A stored tensor that is read when the library indexes it with `[...]`."""

    def __init__(self, entry: TensorEntry, on_read: Callable[[int], None]) -> None:
        self._entry, self._on_read = entry, on_read

    def __getitem__(self, key: Any) -> torch.Tensor:
        tensor = self._entry.read()
        self._on_read(self._entry.num_bytes)
        return tensor if key is Ellipsis else tensor[key]

    def get_shape(self) -> list[int]:
        return list(self._entry.shape)


def is_experts_module(module: nn.Module) -> bool:
    """Whether the class carries the library's experts interface."""
    return all(hasattr(module, flag) for flag in ("has_gate", "is_transposed", "num_experts", "_apply_gate"))


OnIndex = Callable[[PreTrainedModel, list[WithheldModule], int], None]


@contextlib.contextmanager
def experts_withheld(on_index: OnIndex, on_read: Callable[[int], None]) -> Iterator[None]:
    """While active, `from_pretrained` loads no routed expert.

    `on_index(model on the meta device, withheld modules, resident bytes)` runs before any weight is read and may
    raise to refuse; `on_read(num_bytes)` runs in loader threads after each resident tensor.
    """
    original = PreTrainedModel.__dict__["_load_pretrained_model"]

    def load(
        model: PreTrainedModel, state_dict: Any, checkpoint_files: Any, load_config: Any, expected_keys: Any = None
    ) -> Any:
        modules, resident = _split(model, checkpoint_files, load_config)
        on_index(model, modules, sum(entry.num_bytes for entry in resident.values()))
        for withheld in modules:
            _withhold(withheld)
        lazy = {key: LazyTensor(entry, on_read) for key, entry in resident.items()}
        return original.__func__(model, lazy, None, load_config)

    PreTrainedModel._load_pretrained_model = staticmethod(load)
    try:
        yield
    finally:
        PreTrainedModel._load_pretrained_model = original


def _withhold(withheld: WithheldModule) -> None:
    """Takes the parameters off the module; nothing is left to initialise there."""
    for name in withheld.parameters:
        withheld.module._parameters[name] = None
    withheld.module._is_hf_initialized = True  # type: ignore[assignment]


def _split(
    model: PreTrainedModel, files: list[str], load_config: Any
) -> tuple[list[WithheldModule], dict[str, TensorEntry]]:
    """The checkpoint's tensors, told apart: experts by module, and the resident rest by key."""
    mapping = load_config.weight_mapping or []
    renamings = [rule for rule in mapping if isinstance(rule, WeightRenaming)]
    converters = [rule for rule in mapping if isinstance(rule, WeightConverter)]
    converter_of = {pattern: rule for rule in converters for pattern in rule.source_patterns}
    modules = [_declared(name, module) for name, module in model.named_modules() if is_experts_module(module)]
    owner = {parameter.target: parameter for withheld in modules for parameter in withheld.parameters.values()}
    expected, resident = model.state_dict(), {}
    for file in files:
        for entry in read_header(Path(file)):
            key, pattern = rename_source_key(entry.key, renamings, converters, model.base_model_prefix, expected)
            if key not in expected and entry.key in expected:
                key, pattern = rename_source_key(entry.key, [], [], model.base_model_prefix, expected)
            if key in owner:
                _add_parts(owner[key], entry, pattern, converter_of.get(pattern) if pattern else None)
            else:
                resident[entry.key] = entry
    _check_complete(modules)
    return modules, resident


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
