"""A GGUF header as a StoredModel. Light: reads nothing more, and needs no library."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from types import MappingProxyType

from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.model_spec import StoredWeight
from engine.checkpoint.gguf.header import GgufFile, GgufTensor


def stored_model(file: GgufFile, given: Mapping[str, object] = MappingProxyType({})) -> StoredModel:
    """Its numbers without the architecture's prefix, and its tensors. `given`: numbers that the file may lack."""
    prefix = f"{file.architecture}."
    numbers: dict[str, object] = {
        key.removeprefix(prefix): tuple(value) if isinstance(value, array) else value
        for key, value in file.metadata.items()
        if key.startswith(prefix)
    }
    numbers = {**given, **numbers}
    weights = {tensor.name: _weight(tensor) for tensor in file.tensors.values()}
    if "token_embd.weight" in weights and len(weights["token_embd.weight"].shape) == 2:
        numbers.setdefault("vocab_size", weights["token_embd.weight"].shape[1])
    return StoredModel(file.path.name, file.architecture, numbers, weights, is_converted=True)


def _weight(tensor: GgufTensor) -> StoredWeight:
    return StoredWeight(
        tensor.name, tensor.type_id, tensor.shape, str(tensor.path), tensor.file_offset, tensor.num_bytes
    )
