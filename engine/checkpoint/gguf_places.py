"""GGUF models where other programs keep them: LM Studio's folder, Ollama's store, the hub's cache, the current folder.

Nothing is opened but Ollama's manifests; folders are listed within limits, and what was left out is said. Sources: LM
Studio's documentation (`models/publisher/model/file.gguf`); Ollama's (`manifests/registry/namespace/model/tag`, a JSON
file whose layer of the type `application/vnd.ollama.image.model` names a file under `blobs/`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from engine.checkpoint.gguf.location import first_of_each
from engine.checkpoint.gguf.split_files import SUFFIX
from engine.checkpoint.hub_cache import Repository, ggufs_in
from engine.checkpoint.hub_gguf import names_to_type
from offload.bounded_json import Limits, NotReadable, parse_object
from offload.regular_file import read_whole

HUB, LM_STUDIO, OLLAMA, OWN = "Hugging Face", "LM Studio", "Ollama", ""
"""Where a model was found. OWN: in a folder of the user's settings, or in the current one."""
MOST_LISTED: Final = 5000
"""Names that are looked at in one folder."""
_MANIFEST: Final = Limits(max_bytes=1 << 20, max_depth=8)
_MODEL_LAYER: Final = "application/vnd.ollama.image.model"
_REGISTRY, _LIBRARY = "registry.ollama.ai", "library"
_MOST_MANIFESTS: Final = 500


class Found(NamedTuple):
    """A GGUF file that may be a model, or a folder whose rest was not looked at."""

    path: Path
    place: str
    name: str = ""
    """What it is called there; empty: by its file."""
    location: str = ""
    """What `EngineConfig.model` takes; empty: the path."""
    problem: str = ""
    """Why it is no model; empty: that is to be found out."""


class Listing(NamedTuple):
    """A folder's files and folders by name, and whether there are more than `MOST_LISTED`."""

    files: list[Path]
    folders: list[Path]
    is_cut: bool


def listed(folder: Path) -> Listing:
    """Follows links to folders. Raises nothing: a folder that cannot be read is an empty one."""
    files, folders = list[Path](), list[Path]()
    try:
        with os.scandir(folder) as entries:
            found = list(islice(entries, MOST_LISTED + 1))
    except (OSError, ValueError):
        return Listing([], [], False)
    for entry in found[:MOST_LISTED]:
        (folders if _is_folder(entry) else files).append(folder / entry.name)
    return Listing(sorted(files), sorted(folders), len(found) > MOST_LISTED)


def ggufs_in_folder(folder: Path, depth: int, place: str) -> Iterator[Found]:
    """The models in a folder and in those below it, `depth` levels down."""
    found = listed(folder)
    for path in first_of_each(path for path in found.files if path.suffix == SUFFIX):
        yield Found(path, place)
    if found.is_cut:
        yield Found(folder, place, problem=f"holds more than {MOST_LISTED} files: the rest was not looked at")
    if depth:
        for below in found.folders:
            yield from ggufs_in_folder(below, depth - 1, place)


def known_places() -> Iterator[Found]:
    """What LM Studio and Ollama have, and what lies in the current folder."""
    for folder in lm_studio_folders():
        yield from ggufs_in_folder(folder, 2, LM_STUDIO)
    for folder in ollama_folders():
        yield from in_ollama(folder)
    yield from ggufs_in_folder(Path(), 0, OWN)


def in_snapshot(repository: Repository) -> Iterator[Found]:
    """The models of a repository of the hub's cache, by the names that are to be typed for them."""
    models = ggufs_in(repository.snapshot)
    typed = names_to_type(repository.repo_id, models)
    for name, model in zip(typed, models, strict=True):
        is_by_name = bool(repository.repo_id) and repository.is_main and not model.num_missing
        path = repository.snapshot / model.names[0]
        yield Found(path, HUB, name if repository.repo_id else "", name if is_by_name else "")


def lm_studio_folders() -> Sequence[Path]:
    """Where LM Studio keeps models: now, and formerly."""
    return (_home() / ".lmstudio" / "models", _home() / ".cache" / "lm-studio" / "models")


def ollama_folders() -> Sequence[Path]:
    """Ollama's store: OLLAMA_MODELS, else the user's and that of its service on Linux."""
    if chosen := os.environ.get("OLLAMA_MODELS"):
        return (Path(chosen).expanduser(),)
    return (_home() / ".ollama" / "models", Path("/usr/share/ollama/.ollama/models"))


def in_ollama(store: Path) -> Iterator[Found]:
    """The models that the store's manifests name."""
    for manifest in islice(_files_below(store / "manifests", 4), _MOST_MANIFESTS):
        digest = _model_digest(manifest)
        if digest is not None:
            yield Found(store / "blobs" / digest.replace(":", "-"), OLLAMA, _ollama_name(store, manifest))


def _ollama_name(store: Path, manifest: Path) -> str:
    """`qwen3:30b`, as Ollama writes it: registry and namespace where they are not the usual ones."""
    *before, model, tag = manifest.relative_to(store / "manifests").parts
    if before[:1] == [_REGISTRY]:
        before = before[1:]
    if before == [_LIBRARY]:
        before = []
    return "/".join([*before, f"{model}:{tag}"])


def _model_digest(manifest: Path) -> str | None:
    """None: it is no manifest of a model."""
    try:
        layers: Any = parse_object(read_whole(manifest, _MANIFEST.max_bytes), _MANIFEST).get("layers")
    except (OSError, NotReadable):
        return None
    for layer in layers if isinstance(layers, list) else ():
        if isinstance(layer, dict) and layer.get("mediaType") == _MODEL_LAYER:
            digest = layer.get("digest")
            return digest if isinstance(digest, str) and digest.replace(":", "-").replace("-", "").isalnum() else None
    return None


def _files_below(folder: Path, depth: int) -> Iterator[Path]:
    """Files exactly `depth` levels down."""
    found = listed(folder)
    if depth == 1:
        yield from found.files
        return
    for below in found.folders:
        yield from _files_below(below, depth - 1)


def _home() -> Path:
    """Where the system does not say it, a folder that is not there."""
    return Path(os.path.expanduser("~"))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
