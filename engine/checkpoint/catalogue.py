"""The models on this machine, and whether each can be run: for menus. Light: reads config.json and headers, no torch.

What is said of a folder agrees with what loading it would say, as far as that shows without building the model.
Source of the cache's layout: the Hugging Face hub's documentation, "Understand caching"
(`models--owner--name/refs/main` names a folder under `snapshots/`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.checkpoint.config_summary import ConfigNotRead, has_config, summarise_config
from engine.checkpoint.shards import Shards, list_shards, read_raw_header
from engine.config import DEMO_MODEL
from engine.demo.location import built_demo
from engine.errors import MoeChatError

_READABLE_DTYPES = ("BF16", "F16", "F32")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")
_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model that could be chosen. What its config.json does not say is None, or empty."""

    name: str
    location: str
    """What `EngineConfig.model` takes: `demo`, a folder, or a hub id."""
    is_supported: bool
    reason: str
    """Why it cannot be run; empty: nothing speaks against it."""
    architecture: str = ""
    """The model type, such as qwen3_moe."""
    num_layers: int | None = None
    """Decoder layers."""
    num_experts: int | None = None
    """Routed experts a layer."""
    top_k: int | None = None
    total_bytes: int | None = None
    """Of the safetensors files that are there."""


def find_models(folders: Sequence[Path]) -> tuple[ModelEntry, ...]:
    """The demo, the models of `folders`, then those of the hub's cache; each once.

    A folder without a config.json is searched one level down, and listed with the reason when nothing is found there.
    Raises nothing: what cannot be read is left out, or listed with the reason.
    """
    entries, seen = [_demo()], set()
    for path, location in (*_in_folders(folders), *_in_hub_cache(hub_cache())):
        real = path.resolve()
        if real not in seen:
            seen.add(real)
            entries.append(describe_folder(path) if location is None else _describe(path, location, location))
    return tuple(entries)


def describe_folder(path: Path) -> ModelEntry:
    """One folder, whatever it holds. Raises nothing."""
    return _describe(path, path.resolve().name or str(path), str(path))


def hub_cache() -> Path:
    """The hub's cache: HF_HUB_CACHE, or `hub` in HF_HOME, or in the user's cache folder."""
    if chosen := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(chosen).expanduser()
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or os.path.join(caches, "huggingface")
    return Path(home).expanduser() / "hub"


def _demo() -> ModelEntry:
    folder = built_demo()
    if folder is None:
        return ModelEntry(DEMO_MODEL, DEMO_MODEL, is_supported=True, reason="")
    return _describe(folder, DEMO_MODEL, DEMO_MODEL)


def _in_folders(folders: Sequence[Path]) -> Iterator[tuple[Path, None]]:
    for folder in folders:
        found = [folder] if has_config(folder) else [path for path in _children(folder) if has_config(path)]
        for path in found or [folder]:
            yield path, None


def _in_hub_cache(cache: Path) -> Iterator[tuple[Path, str]]:
    """(snapshot, location): the one that `main` names, by its hub id; without one the newest, by its path."""
    for repository in _children(cache):
        kind, *parts = repository.name.split("--")
        if kind != "models" or not parts:
            continue
        main, snapshots = _main_of(repository), _children(repository / "snapshots")
        if main in snapshots and len(parts) > 1:
            folder, location = main, f"{parts[0]}/{'--'.join(parts[1:])}"
        elif snapshots:
            folder = max(snapshots, key=os.path.getmtime)
            location = str(folder)
        else:
            continue
        if has_config(folder):
            yield folder, location


def _main_of(repository: Path) -> Path | None:
    try:
        return repository / "snapshots" / (repository / "refs" / "main").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return None


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []


# -- one folder --------------------------------------------------------------------------------------------------------


def _describe(path: Path, name: str, location: str) -> ModelEntry:
    try:
        summary = summarise_config(path)
        shards, reason = _shards_of(path)
        reason = summary.problem or reason or _problem_of_files(path, shards)
        total_bytes = sum(shard.stat().st_size for shard in shards.paths if shard.exists())
    except ConfigNotRead as error:
        return ModelEntry(name, location, is_supported=False, reason=str(error))
    except OSError as error:
        return ModelEntry(name, location, is_supported=False, reason=f"cannot be read: {error.strerror}")
    return ModelEntry(
        name,
        location,
        is_supported=not reason,
        reason=reason,
        architecture=summary.architecture,
        num_layers=summary.num_layers,
        num_experts=summary.num_experts,
        top_k=summary.top_k,
        total_bytes=total_bytes or None,
    )


def _shards_of(folder: Path) -> tuple[Shards, str]:
    """The weight files, and what is wrong with their list."""
    none = Shards((), ())
    if not any(folder.glob("*.safetensors*")):
        if any(next(iter(folder.glob(pattern)), None) for pattern in _PICKLED):
            return none, "no safetensors: its weights are pickles, which are never loaded"
        return none, "a GGUF file, which is not read" if any(folder.glob("*.gguf")) else "no safetensors"
    try:
        shards = list_shards(folder)
    except MoeChatError as error:
        return none, f"damaged: {error.message}"
    if shards.missing:
        num = len(shards.paths)
        return shards, f"incomplete: {len(shards.missing)} of {num} shards {'is' if num == 1 else 'are'} missing"
    return shards, ""


def _problem_of_files(folder: Path, shards: Shards) -> str:
    """What the headers have against it, and the tokenizer's files."""
    for path in shards.paths:
        if reason := _problem_of_file(path):
            return reason
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        return "incomplete: there is no tokenizer"
    return ""


def _problem_of_file(path: Path) -> str:
    try:
        header = read_raw_header(path)
    except MoeChatError as error:
        return f"damaged: {error.message}"
    end = 0
    for key, value in header.entries.items():
        if not isinstance(value, dict):
            return f"damaged: {path.name} describes {key!r} as nothing"
        offsets, dtype = value.get("data_offsets"), value.get("dtype")
        if isinstance(offsets, list) and offsets and type(offsets[-1]) is int:
            end = max(end, offsets[-1])
        if ".experts." in key and dtype not in _READABLE_DTYPES:
            return f"quantised weights ({dtype}) cannot be read"
    missing = header.data_start + end - header.file_bytes
    return f"incomplete: {path.name} ends {missing} bytes too early" if missing > 0 else ""
