"""The activation matrices of a model's past requests, kept from one start to the next beside its profiles.

The file format (version 1) is that of `offload.archive`, named "moe-chat past requests". Its header holds `model` (the
fingerprint) and `layers` (see `geometry_to_json`); its one array, `counts`, is uint32 [requests, layers, experts]. No
text of a request is in it, only how many tokens each expert got.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from engine.profiles.store import profiles_root
from offload.archive import geometry_from_json, geometry_to_json, read_archive, text_of, write_archive
from offload.bounded_json import told
from offload.errors import ProfileError
from offload.geometry import Geometry
from offload.policies.activations.collection import ActivationCollection

_FORMAT: Final = "moe-chat past requests"
_VERSION: Final = 1
_MAX_HEADER_BYTES: Final = 1 << 20
_REMEDY: Final = "Delete the file: it fills again while you chat."


class PastRequests:
    """One model's collection, read when it is first asked for. A file that cannot be used is as good as none, and gives
    way when there is something to write: it is kept beside the new one, as `<name>.unusable`."""

    def __init__(self, fingerprint: str, geometry: Geometry, *, is_kept: bool = True) -> None:
        """`is_kept`: False starts empty and saves nothing, for benches."""
        self._fingerprint, self._geometry, self._is_kept = fingerprint, geometry, is_kept
        self.path: Path = profiles_root() / fingerprint / "activations.requests"
        self._collection: ActivationCollection | None = None
        self._saved_version = 0
        self.problem = ""
        """Why what was kept is not used, for a person."""

    @property
    def collection(self) -> ActivationCollection:
        """The matrices, which the policies add to."""
        if self._collection is None:
            self._collection = ActivationCollection(self._geometry)
            try:
                if self._is_kept and os.path.lexists(self.path):
                    for counts in _load(self.path, self._fingerprint, self._collection, self._geometry):
                        self._collection.add(counts.astype(np.int64))
            except ProfileError as failure:
                self.problem = f"{failure.message} It is not used; it is kept beside the new one."
            self._saved_version = self._collection.version
        return self._collection

    def save(self) -> None:
        """Writes the file, atomically, if anything was added since. A full disk costs the new entries, nothing else."""
        collection = self._collection
        if collection is None or not self._is_kept or collection.version == self._saved_version:
            return
        header = {"model": self._fingerprint, "layers": geometry_to_json(self._geometry)}
        with suppress(OSError):
            if self.problem and os.path.lexists(self.path):
                os.replace(self.path, self.path.with_suffix(".requests.unusable"))
                self.problem = ""
            write_archive(self.path, _FORMAT, _VERSION, header, {"counts": collection.all_counts()})
            self._saved_version = collection.version


def _load(path: Path, fingerprint: str, collection: ActivationCollection, geometry: Geometry) -> np.ndarray:
    """uint32 [requests, layers, experts], at most as many as the collection holds. Raises ProfileError when the file is
    damaged or another model's."""
    max_bytes = _MAX_HEADER_BYTES + 2 * collection.num_bytes
    header, arrays = read_archive(path, _FORMAT, _VERSION, ProfileError, _REMEDY, max_bytes)
    try:
        if text_of(header, "model") != fingerprint or not geometry_from_json(header["layers"]).routes_like(geometry):
            raise ProfileError(f"The past requests in {path} are of another model.", _REMEDY)
        counts = arrays["counts"]
    except KeyError as failure:
        raise ProfileError(f"{path} is damaged: it lacks {told(failure)}.", _REMEDY) from failure
    except (TypeError, ValueError) as failure:
        raise ProfileError(f"{path} is damaged: {told(failure)}.", _REMEDY) from failure
    if counts.dtype != np.uint32 or counts.ndim != 3 or counts.shape[1:] != collection.shape:
        raise ProfileError(f"{path} is damaged: its counts are {counts.dtype} {list(counts.shape)}.", _REMEDY)
    for layer, own in enumerate(geometry.layers):
        if counts[:, layer, own.num_experts :].any():
            raise ProfileError(f"{path} is damaged: it counts experts that layer {layer} does not have.", _REMEDY)
    return counts[: collection.capacity]
