"""The models on this machine, and whether each can be run: for menus. Light: reads headers and configurations alone.

What is said of a folder is what loading it would say, as far as that shows without building the model: both choose the
files, read them and compare them by the same functions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import Any, Final

from engine.checkpoint.config_file import read_config_file
from engine.checkpoint.config_summary import has_config, summarise_config
from engine.checkpoint.cross_check import contradiction
from engine.checkpoint.format_shares import shares_in_words
from engine.checkpoint.gguf.header import GgufFile, read_gguf
from engine.checkpoint.gguf.location import find_gguf, model_name
from engine.checkpoint.gguf.split_files import MissingParts
from engine.checkpoint.gguf.summary import problem_of, summary_of
from engine.checkpoint.gguf_places import HUB, OWN, Found, ggufs_in_folder, in_snapshot, known_places, listed
from engine.checkpoint.header import TruncatedFile, read_header
from engine.checkpoint.hub_cache import hub_cache as hub_cache  # the place, read from here by the app
from engine.checkpoint.hub_cache import repositories
from engine.checkpoint.model_entry import Costs as Costs  # the values, read from here by the app
from engine.checkpoint.model_entry import Examine, Examined, FolderHeaders
from engine.checkpoint.model_entry import ModelEntry as ModelEntry
from engine.checkpoint.shards import Shards, choose_shards, pickled_file
from engine.checkpoint.stored_tensors import Placed
from engine.checkpoint.tokenizer_files import check_tokenizer_files, has_tokenizer
from engine.config import DEMO_MODEL
from engine.demo.location import built_demo
from engine.errors import MoeChatError, UnsupportedModelError
from offload.bounded_json import shown
from offload.regular_file import is_regular, why

_READABLE_DTYPES = ("BF16", "F16", "F32")
MOST_MODELS: Final = 200
_MOST_SECONDS: Final = 10
"""A menu holds so many at most, and is made in so long; what is left out is said in an entry by itself."""


def _not_examined(model: GgufFile | FolderHeaders) -> Examined:
    return Examined()


def find_models(folders: Sequence[Path], examine: Examine = _not_examined) -> tuple[ModelEntry, ...]:
    """The demo, the models of `folders`, those of the hub's cache, and GGUF models where other programs keep them; each
    once. `examine` looks closer at each model's headers.

    A folder without a config.json is searched one level down, and listed with the reason when nothing is found there.
    Every GGUF model in a folder, or in one of the folders in it, is an entry; so is a GGUF file among `folders`.
    Raises nothing: what cannot be read is left out, or listed with the reason. Never blocks: only regular files are
    opened, and folders are listed within limits.
    """
    entries, seen, deadline_s = [_demo(examine)], set[Path](), monotonic() + _MOST_SECONDS
    files = [path for path in folders if not path.is_dir()]  # last: other programs have better names for theirs
    rest = [path for path in folders if path not in files]
    places = (_of_folders(rest, examine, seen), _of_hub(examine, seen), _of_places(examine, seen))
    for entry in chain(*places, _of_folders(files, examine, seen)):
        entries.append(entry)
        if len(entries) > MOST_MODELS or monotonic() > deadline_s:
            reason = f"only {len(entries) - 1} models were looked at: name others by their paths"
            return (*entries, ModelEntry("...", "", is_supported=False, reason=reason))
    return tuple(entries)


def describe_folder(path: Path, examine: Examine = _not_examined) -> ModelEntry:
    """One folder, whatever it holds, or one GGUF file. Raises nothing."""
    if not (has_config(path) and any(path.glob("*.safetensors"))):
        try:
            file = find_gguf(path)
        except MoeChatError as error:
            return _refused(Found(path, OWN), error.message.rstrip("."))
        if file is not None:
            return _describe_gguf(Found(file, OWN), examine)
    return _describe(path, path.resolve().name or str(path), str(path), examine)


def _demo(examine: Examine) -> ModelEntry:
    folder = built_demo()
    if folder is None:
        return ModelEntry(DEMO_MODEL, DEMO_MODEL, is_supported=True, reason="")
    return _describe(folder, DEMO_MODEL, DEMO_MODEL, examine)


def _of_folders(folders: Sequence[Path], examine: Examine, seen: set[Path]) -> Iterator[ModelEntry]:
    for folder in folders:
        children = [] if has_config(folder) else listed(folder).folders
        checkpoints = [path for path in (folder, *children) if has_config(path)]
        places = [folder, *children] if not has_config(folder) else []
        ggufs = [file for place in places if place not in checkpoints for file in ggufs_in_folder(place, 0, OWN)]
        for path in checkpoints or ([] if ggufs else [folder]):
            if _is_new(path, seen):
                yield describe_folder(path, examine)
        yield from _described(ggufs, examine, seen)


def _of_hub(examine: Examine, seen: set[Path]) -> Iterator[ModelEntry]:
    """Transformers checkpoints by their hub ids, and by their paths where `main` is not there; GGUF models."""
    for repository in repositories(hub_cache()):
        folder = repository.snapshot
        if not has_config(folder) or not any(folder.glob("*.safetensors*")):
            ggufs = list(in_snapshot(repository))
            yield from _described(ggufs, examine, seen)
            if ggufs:
                continue
        if has_config(folder) and _is_new(folder, seen):
            location = repository.repo_id if repository.is_main and repository.repo_id else str(folder)
            yield replace(_describe(folder, location, location, examine), place=HUB)


def _of_places(examine: Examine, seen: set[Path]) -> Iterator[ModelEntry]:
    yield from _described(known_places(), examine, seen)


def _described(files: Iterable[Found], examine: Examine, seen: set[Path]) -> Iterator[ModelEntry]:
    for found in files:
        if found.problem:
            yield _refused(found, found.problem)
        elif _is_new(found.path, seen):
            yield _describe_gguf(found, examine)


def _is_new(path: Path, seen: set[Path]) -> bool:
    """Whether neither it nor what its link leads to has been seen. Remembers it."""
    try:
        real = path.resolve()
    except (OSError, RuntimeError):  # links in a circle
        real = path.absolute()
    is_new = real not in seen
    seen.add(real)
    return is_new


# -- one GGUF model ----------------------------------------------------------------------------------------------------


def _describe_gguf(found: Found, examine: Examine) -> ModelEntry:
    path = Path(os.path.abspath(found.path))
    try:
        file = read_gguf(path)
        summary = summary_of(file)
        may_run = not problem_of(file, has_tokenizer=True)
        examined = examine(file) if may_run else Examined()
    except UnsupportedModelError as error:
        return _refused(found, _within(path.parent, error).removeprefix(f"{path.name}: "))
    except MissingParts as error:
        return _refused(found, f"incomplete: {_within(path.parent, error)}")
    except MoeChatError as error:
        return _refused(found, f"damaged: {_within(path.parent, error)}")
    except OSError as error:
        return _refused(found, f"cannot be read: {why(error)}")
    problem = (summary.problem if not (may_run and examined.has_tokenizer) else "") or examined.problem
    return ModelEntry(
        found.name or model_name(path),
        found.location or str(path),
        is_supported=not problem,
        reason=problem,
        architecture=summary.architecture,
        num_layers=summary.num_layers,
        num_experts=summary.num_experts,
        top_k=summary.top_k,
        total_bytes=summary.total_bytes,
        formats=shares_in_words(summary.formats),
        backend=examined.backend,
        place=found.place,
        costs=examined.costs if not problem else None,
    )


def _refused(found: Found, reason: str) -> ModelEntry:
    location = str(found.path.absolute()) if found.place else str(found.path)
    name = found.name or (model_name(found.path) if not found.problem else str(found.path))
    return ModelEntry(name, location, is_supported=False, reason=reason, place=found.place)


# -- one folder --------------------------------------------------------------------------------------------------------


class _Refused(Exception):
    """Loading this folder would fail; says why."""


def _describe(path: Path, name: str, location: str, examine: Examine) -> ModelEntry:
    summary, total_bytes, reason, examined, formats = None, 0, "", Examined(), ""
    try:
        config = _config_of(path)
        summary = summarise_config(config)
        shards = _shards_of(path)
        total_bytes = sum(shard.stat().st_size for shard in shards.paths if is_regular(shard))
        reason = summary.problem or _missing(shards)
        if not reason:
            headers = _headers_of(path, shards)
            examined = examine(headers)
            formats = shares_in_words(headers.shares()) if examined.backend else ""
            reason = "" if examined.backend else _quantised(summary.quantization) or _quantised(_unread(headers))
            reason = reason or _problem_of_files(config, headers)
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
        formats=formats,
        backend=examined.backend,
        costs=examined.costs if not reason else None,
    )


def _quantised(kind: str) -> str:
    return f"quantised weights ({kind}) cannot be read" if kind else ""


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


def _missing(shards: Shards) -> str:
    num = len(shards.paths)
    if not shards.missing:
        return ""
    return f"incomplete: {len(shards.missing)} of {num} shards {'is' if num == 1 else 'are'} missing"


def _headers_of(folder: Path, shards: Shards) -> FolderHeaders:
    """Of every shard. Raises _Refused and CheckpointError."""
    found: list[Placed] = []
    for path in shards.paths:
        try:
            found += [Placed(path, tensor) for tensor in read_header(path)]
        except TruncatedFile as error:
            raise _Refused(f"incomplete: {path.name} ends {error.missing_bytes} bytes too early") from error
        except UnsupportedModelError as error:
            raise _Refused(_within(folder, error)) from error
    return FolderHeaders(folder, found)


def _unread(headers: FolderHeaders) -> str:
    """The format of experts that transformers' back end does not read; empty: there are none."""
    kinds = (tensor.dtype for _, tensor in headers.tensors if ".experts." in tensor.key)
    return next((kind for kind in kinds if kind not in _READABLE_DTYPES), "")


def _problem_of_files(config: Mapping[str, Any], headers: FolderHeaders) -> str:
    """What the weights, and the tokenizer's files, have against it. Raises CheckpointError."""
    folder, shapes = headers.folder, dict[str, tuple[int, ...]]()
    for _, tensor in headers.tensors:
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
    return error.message.replace(f"{folder}{os.sep}", "").replace(f" in {folder}:", ":").rstrip(".")
