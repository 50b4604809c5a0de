"""Trained predictors of the next layer's selection, kept beside the model's profiles: `<domain>.predictor.safetensors`.

The metadata of a file says the format, its version, the fingerprint of the model, the domain, and the accuracy on
held-out prompts. A file is checked before it is used: sizes, shapes, types, finite values.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save

from engine.checkpoint.header import StoredTensor, read_header, read_texts
from engine.errors import MoeChatError
from engine.profiles.store import is_domain_name, profiles_root
from offload.atomic_file import replaced
from offload.bounded_json import shown, told
from offload.errors import ProfileError
from offload.geometry import Geometry
from offload.policies.forecast.selection_predictor import SelectionPredictor
from offload.regular_file import is_regular, open_regular, read_range
from offload.replay.selection_statistics import Accuracy

_FORMAT: Final = "moe-chat selection predictor 1"
_SUFFIX: Final = ".predictor.safetensors"
_MAX_WIDTH: Final = 2048
_MAX_WEIGHTS: Final = 8
_REMEDY: Final = "Train it again: moe-chat profile build --predictor --domain NAME"
_FIXED: Final = ("history", "layer_rows", "affinity_rows", "popularity", "affinity")


class Trained(NamedTuple):
    """A predictor, and what it is worth on prompts it has not seen."""

    predictor: SelectionPredictor
    accuracy: Accuracy
    num_trained_on: int
    """Prompts."""
    num_held_out: int


@dataclass(frozen=True, slots=True)
class KeptPredictor:
    """A predictor and what is said of it."""

    predictor: SelectionPredictor
    domain: str
    about: str
    """Its accuracy, for a person."""


class PredictorStore:
    """The trained predictors of one model."""

    def __init__(self, fingerprint: str, geometry: Geometry) -> None:
        self._fingerprint, self._geometry = fingerprint, geometry
        self._folder = profiles_root() / fingerprint
        self._num_experts = max((layer.num_experts for layer in geometry.layers), default=0)
        self.problem = ""
        """Of the last search: why a file that is there is not used, for a person."""

    def path(self, domain: str) -> Path:
        """The file of a domain's predictor."""
        return self._folder / f"{domain}{_SUFFIX}"

    def save(self, domain: str, trained: Trained) -> Path:
        """Writes a predictor, over an earlier one. Raises ProfileError when it cannot be written."""
        path, predictor = self.path(domain), trained.predictor
        arrays = {name: getattr(predictor, name) for name in _FIXED}
        for number, (weight, bias) in enumerate(zip(predictor.weights, predictor.biases, strict=True)):
            arrays |= {f"weight.{number}": weight, f"bias.{number}": bias}
        metadata = {
            "format": _FORMAT,
            "model": self._fingerprint,
            "domain": domain,
            "about": accuracy_in_words(trained),
        }
        try:
            with replaced(path) as file:
                file.write(save(arrays, metadata))
        except (OSError, SafetensorError) as error:
            raise ProfileError(f"{path} cannot be written: {error}.", "Free some space, try again.") from error
        return path

    def _names(self) -> list[str]:
        """The domains that have a predictor, damaged ones included."""
        names = (path.name.removesuffix(_SUFFIX) for path in self._folder.glob(f"*{_SUFFIX}"))
        return sorted(name for name in names if is_domain_name(name))

    def largest_bytes(self) -> int:
        """Bytes of the largest file that could be one; 0 where there is none."""
        sizes = (self.path(name).stat().st_size for name in self._names() if is_regular(self.path(name)))
        return max((size for size in sizes if size <= self._max_bytes), default=0)

    def best_for(self, domain: str | None) -> KeptPredictor | None:
        """The domain's predictor, or else the first one that can be used; None where there is none. Sets `problem`."""
        self.problem = ""
        for name in sorted(self._names(), key=lambda each: each != domain):
            try:
                return self.load(name)
            except ProfileError as failure:
                self.problem = self.problem or f"{failure.message} It is not used. {failure.hint}"
        return None

    def load(self, domain: str) -> KeptPredictor:
        """Raises ProfileError when the file is missing, damaged, or another model's. Shapes are compared with the
        model's before any value is read."""
        path = self.path(domain)
        try:
            texts, tensors = read_texts(path), {tensor.key: tensor for tensor in read_header(path)}
            if texts.get("format") != _FORMAT or texts.get("model") != self._fingerprint:
                raise ProfileError(f"The predictor in {path} is of another model or version.", _REMEDY)
            num_weights = self._checked(path, tensors)
            arrays = _read_arrays(path, tensors.values())
        except MoeChatError as failure:
            raise ProfileError(failure.message, _REMEDY) from failure
        except (EOFError, OSError) as failure:
            raise ProfileError(f"{path} cannot be read: {told(failure)}.", _REMEDY) from failure
        predictor = SelectionPredictor(
            **{name: arrays[name] for name in _FIXED},
            weights=tuple(arrays[f"weight.{number}"] for number in range(num_weights)),
            biases=tuple(arrays[f"bias.{number}"] for number in range(num_weights)),
        )
        return KeptPredictor(predictor, domain, texts.get("about", "")[:200])

    def _checked(self, path: Path, tensors: Mapping[str, StoredTensor]) -> int:
        """The number of weights. Raises ProfileError unless the tensors are those of this model's predictor."""
        num_weights = sum(name.startswith("weight.") for name in tensors)
        names = {*_FIXED, *(f"{kind}.{number}" for number in range(num_weights) for kind in ("weight", "bias"))}
        if names != set(tensors) or not 0 < num_weights <= _MAX_WEIGHTS:
            raise ProfileError(f"{path} is damaged: it holds {', '.join(sorted(tensors))[:200]}.", _REMEDY)
        ends = [tensors[name].shape[-1:] for name in ("history", *(f"bias.{number}" for number in range(num_weights)))]
        widths = [end[0] if end else 0 for end in ends]
        if not all(0 < width <= _MAX_WIDTH for width in widths) or widths[-1] != self._num_experts:
            raise ProfileError(f"{path} is damaged: its layers are {shown(widths)} wide.", _REMEDY)
        for name, shape in self._shapes(widths).items():
            found = tensors[name]
            if found.dtype != "F32" or found.shape != shape:
                raise ProfileError(f"{path} is damaged: {name} is {found.dtype} {shown(list(found.shape))}.", _REMEDY)
        return num_weights

    def _shapes(self, widths: Sequence[int]) -> dict[str, tuple[int, ...]]:
        num_layers, num_experts, width = self._geometry.num_layers, self._num_experts, widths[0]
        shapes: dict[str, tuple[int, ...]] = {
            "history": (num_layers * num_experts, width),
            "layer_rows": (num_layers, width),
            "affinity_rows": (num_experts, width),
            "popularity": (num_layers, num_experts),
            "affinity": (num_layers, num_experts, num_experts),
        }
        for number, pair in enumerate(pairwise(widths)):
            shapes |= {f"weight.{number}": pair, f"bias.{number}": pair[1:]}
        return shapes

    @property
    def _max_bytes(self) -> int:
        """Of a file: that of the widest predictor, and its header."""
        widths = (_MAX_WIDTH,) * _MAX_WEIGHTS + (self._num_experts,)
        return (1 << 20) + sum(4 * math.prod(shape) for shape in self._shapes(widths).values())


def _read_arrays(path: Path, tensors: Iterable[StoredTensor]) -> dict[str, np.ndarray]:
    """Raises ProfileError for a value that is not finite, EOFError, OSError."""
    arrays, fd = {}, open_regular(path)
    try:
        for tensor in tensors:
            values = np.frombuffer(read_range(fd, tensor.file_offset, tensor.num_bytes), "<f4").reshape(tensor.shape)
            if not np.isfinite(values).all():
                raise ProfileError(f"{path} is damaged: {tensor.key} holds a value that is not finite.", _REMEDY)
            arrays[tensor.key] = values
    finally:
        os.close(fd)
    return arrays


def accuracy_in_words(trained: Trained) -> str:
    """`exact top k 61%, at least half 97%, on 3 held-out prompts`."""
    exact, half = trained.accuracy.exact_rate, trained.accuracy.half_rate
    if exact is None or half is None:
        return "not measured"
    return f"exact top k {exact:.0%}, at least half {half:.0%}, on {trained.num_held_out} held-out prompts"
