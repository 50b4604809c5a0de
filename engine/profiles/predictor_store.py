"""Trained predictors of the next layer's selection, kept beside the model's profiles: `<domain>.predictor.safetensors`.

The metadata of a file says the format, its version, the fingerprint of the model, the domain, and the accuracy on
held-out prompts. A file is checked before it is used: sizes, shapes, types, finite values.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from engine.profiles.store import profiles_root
from offload.errors import ProfileError
from offload.geometry import Geometry
from offload.policies.forecast.selection_predictor import SelectionPredictor
from offload.replay.selection_statistics import Accuracy

_FORMAT: Final = "moe-chat selection predictor 1"
_MAX_BYTES: Final = 1 << 30
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

    def path(self, domain: str) -> Path:
        """The file of a domain's predictor."""
        return self._folder / f"{domain}.predictor.safetensors"

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
        part = path.with_suffix(".part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            save_file(arrays, part, metadata)
            os.replace(part, path)
        except (OSError, SafetensorError) as error:
            part.unlink(missing_ok=True)
            raise ProfileError(f"{path} cannot be written: {error}.", "Free some space, try again.") from error
        return path

    def largest_bytes(self) -> int:
        """Bytes of the largest file; 0 where there is none."""
        return max((path.stat().st_size for path in self._folder.glob("*.predictor.safetensors")), default=0)

    def best_for(self, domain: str | None) -> KeptPredictor | None:
        """The domain's predictor, or else the first one that can be used; None where there is none."""
        names = sorted(path.name.partition(".")[0] for path in self._folder.glob("*.predictor.safetensors"))
        for name in sorted(names, key=lambda each: each != domain):
            try:
                return self.load(name)
            except ProfileError:
                continue
        return None

    def load(self, domain: str) -> KeptPredictor:
        """Raises ProfileError when the file is missing, damaged, or another model's."""
        path = self.path(domain)
        try:
            if path.stat().st_size > _MAX_BYTES:
                raise ProfileError(f"{path} is damaged: it is too large.", _REMEDY)
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        except (OSError, SafetensorError) as failure:
            raise ProfileError(f"{path} cannot be read: {failure}.", _REMEDY) from failure
        if metadata.get("format") != _FORMAT or metadata.get("model") != self._fingerprint:
            raise ProfileError(f"The predictor in {path} is of another model or version.", _REMEDY)
        predictor = _checked(path, arrays, self._geometry)
        return KeptPredictor(predictor, domain, metadata.get("about", "")[:200])


def accuracy_in_words(trained: Trained) -> str:
    """`exact top k 61%, at least half 97%, on 3 held-out prompts`."""
    exact, half = trained.accuracy.exact_rate, trained.accuracy.half_rate
    if exact is None or half is None:
        return "not measured"
    return f"exact top k {exact:.0%}, at least half {half:.0%}, on {trained.num_held_out} held-out prompts"


def _checked(path: Path, arrays: dict[str, np.ndarray], geometry: Geometry) -> SelectionPredictor:
    num_layers = geometry.num_layers
    num_experts = max((layer.num_experts for layer in geometry.layers), default=0)
    count = sum(name.startswith("weight.") for name in arrays)
    names = {*_FIXED, *(f"{kind}.{number}" for number in range(count) for kind in ("weight", "bias"))}
    if names != set(arrays) or not count:
        raise ProfileError(f"{path} is damaged: it holds {', '.join(sorted(arrays))[:200]}.", _REMEDY)
    width = arrays["history"].shape[-1]
    widths = [width, *(arrays[f"bias.{number}"].shape[-1] for number in range(count))]
    expected = {
        "history": (num_layers * num_experts, width),
        "layer_rows": (num_layers, width),
        "affinity_rows": (num_experts, width),
        "popularity": (num_layers, num_experts),
        "affinity": (num_layers, num_experts, num_experts),
    }
    for number in range(count):
        expected |= {f"weight.{number}": (widths[number], widths[number + 1]), f"bias.{number}": (widths[number + 1],)}
    for name, shape in expected.items():
        array = arrays[name]
        if array.dtype != np.float32 or array.shape != shape or not np.isfinite(array).all():
            raise ProfileError(f"{path} is damaged: {name} is {array.dtype} {list(array.shape)}.", _REMEDY)
    if widths[-1] != num_experts:
        raise ProfileError(f"{path} is damaged: it scores {widths[-1]} experts of {num_experts}.", _REMEDY)
    return SelectionPredictor(
        **{name: arrays[name] for name in _FIXED},
        weights=tuple(arrays[f"weight.{number}"] for number in range(count)),
        biases=tuple(arrays[f"bias.{number}"] for number in range(count)),
    )
