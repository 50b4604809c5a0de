"""The models on this machine, and whether each can be run: for menus. Light: reads headers and configurations alone.

What is said of a folder is what loading it would say, as far as that shows without building the model: both choose the
files, read them and compare them by the same functions.
Source of the cache's layout: the Hugging Face hub's documentation, "Understand caching"
(`models--owner--name/refs/main` names a folder under `snapshots/`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.checkpoint.config_file import read_config_file
from engine.checkpoint.config_summary import has_config, summarise_config
from engine.checkpoint.cross_check import contradiction
from engine.checkpoint.gguf.location import find_gguf, model_name, models_in
from engine.checkpoint.gguf.summary import summarise_gguf
from engine.checkpoint.header import TruncatedFile, read_header
from engine.checkpoint.shards import Shards, choose_shards, pickled_file
from engine.checkpoint.tokenizer_files import check_tokenizer_files, has_tokenizer
from engine.config import DEMO_MODEL
from engine.demo.location import built_demo
from engine.errors import MoeChatError, UnsupportedModelError
from offload.bounded_json import shown
from offload.regular_file import is_regular, read_whole, why

_READABLE_DTYPES = ("BF16", "F16", "F32")
_MAX_REF_BYTES = 4096


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model that could be chosen. What its config.json does not say is None, or empty."""

    name: str
    location: str
    """What `EngineConfig.model` takes: `demo`, a folder, a GGUF file, or a hub id."""
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
    """Of the files of weights that are there."""


def find_models(folders: Sequence[Path]) -> tuple[ModelEntry, ...]:
    """The demo, the models of `folders`, then those of the hub's cache; each once.

    A folder without a config.json is searched one level down, and listed with the reason when nothing is found there.
    Every GGUF model in a folder, or in one of the folders in it, is an entry; so is a GGUF file among `folders`.
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
    """One folder, whatever it holds, or one GGUF file. Raises nothing."""
    if not (has_config(path) and any(path.glob("*.safetensors"))):
        try:
            file = find_gguf(path)
        except MoeChatError as error:
            return _refused(path, error.message.rstrip("."))
        if file is not None:
            return _describe_gguf(file)
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
        if has_config(folder):
            found = [folder]
        else:
            children = _children(folder)
            found = [path for path in children if has_config(path)]
            found += [file for place in (folder, *children) if place not in found for file in models_in(place)]
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
        commit = read_whole(repository / "refs" / "main", _MAX_REF_BYTES).decode()
        return repository / "snapshots" / commit.strip()
    except (OSError, ValueError):
        return None


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []


# -- one GGUF model ----------------------------------------------------------------------------------------------------


def _describe_gguf(path: Path) -> ModelEntry:
    try:
        summary = summarise_gguf(path)
    except UnsupportedModelError as error:
        return _refused(path, _within(path.parent, error))
    except MoeChatError as error:
        return _refused(path, f"damaged: {_within(path.parent, error)}")
    except OSError as error:
        return _refused(path, f"cannot be read: {why(error)}")
    return ModelEntry(
        model_name(path),
        str(path),
        is_supported=not summary.problem,
        reason=summary.problem,
        architecture=summary.architecture,
        num_layers=summary.num_layers,
        num_experts=summary.num_experts,
        top_k=summary.top_k,
        total_bytes=summary.total_bytes,
    )


def _refused(path: Path, reason: str) -> ModelEntry:
    return ModelEntry(model_name(path), str(path), is_supported=False, reason=reason)


# -- one folder --------------------------------------------------------------------------------------------------------


class _Refused(Exception):
    """Loading this folder would fail; says why."""


def _describe(path: Path, name: str, location: str) -> ModelEntry:
    summary, total_bytes, reason = None, 0, ""
    try:
        config = _config_of(path)
        summary = summarise_config(config)
        shards = _shards_of(path)
        total_bytes = sum(shard.stat().st_size for shard in shards.paths if is_regular(shard))
        reason = summary.problem or _problem_of_files(path, config, shards)
    except _Refused as refusal:
        reason = (summary.problem if summary is not None else "") or str(refusal)
    except MoeChatError as error:
        reason = (summary.problem if summary is not None else "") or f"damaged: {_within(path, error)}"
    except OSError as error:
        reason = f"cannot be read: {why(error)}"
    return ModelEntry(
        name,
        location,
        is_supported=not reason,
        reason=reason,
        architecture=summary.architecture if summary else "",
        num_layers=summary.num_layers if summary else None,
        num_experts=summary.num_experts if summary else None,
        top_k=summary.top_k if summary else None,
        total_bytes=total_bytes or None,
    )


def _config_of(folder: Path) -> dict[str, Any]:
    """The checked configuration. Raises _Refused."""
    if not has_config(folder):
        if is_regular(folder):
            raise _Refused("a file, and no GGUF file: other models are folders")
        raise _Refused("not a model folder: there is no config.json" if folder.is_dir() else "no such folder")
    try:
        return read_config_file(folder)
    except MoeChatError as error:
        raise _Refused(_within(folder, error)) from error


def _shards_of(folder: Path) -> Shards:
    """The weight files. Raises _Refused and MoeChatError."""
    if not any(folder.glob("*.safetensors*")):
        if pickled_file(folder):
            raise _Refused("no safetensors: its weights are pickles, which are never loaded")
        raise _Refused("no safetensors")
    return choose_shards(folder)


def _problem_of_files(folder: Path, config: Mapping[str, Any], shards: Shards) -> str:
    """What the weights, and the tokenizer's files, have against it. Raises CheckpointError."""
    if shards.missing:
        num = len(shards.paths)
        return f"incomplete: {len(shards.missing)} of {num} shards {'is' if num == 1 else 'are'} missing"
    shapes: dict[str, tuple[int, ...]] = {}
    for path in shards.paths:
        try:
            tensors = read_header(path)
        except TruncatedFile as error:
            return f"incomplete: {path.name} ends {error.missing_bytes} bytes too early"
        except UnsupportedModelError as error:
            return _within(folder, error)
        for tensor in tensors:
            if ".experts." in tensor.key and tensor.dtype not in _READABLE_DTYPES:
                return f"quantised weights ({tensor.dtype}) cannot be read"
            if tensor.key in shapes:
                return f"damaged: {shown(tensor.key)} is stored twice"
            shapes[tensor.key] = tensor.shape
    if not shapes:
        return "damaged: it holds no tensors"
    if problem := contradiction(config, shapes):
        return f"damaged: {problem}"
    if not has_tokenizer(folder):
        return "incomplete: there is no tokenizer"
    check_tokenizer_files(folder)
    return ""


def _within(folder: Path, error: MoeChatError) -> str:
    """The error's message as part of a line about the folder: file names without their path, no full stop."""
    return error.message.replace(f"{folder}{os.sep}", "").rstrip(".")
