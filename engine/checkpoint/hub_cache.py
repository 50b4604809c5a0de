"""What of the hub's models is in its local cache. Light, and makes no request.

Source of the cache's layout: the Hugging Face hub's documentation, "Understand caching"
(`models--owner--name/refs/main` names a folder under `snapshots/`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from engine.checkpoint.gguf.split_files import SUFFIX
from engine.checkpoint.hub_gguf import HubGguf, HubName, ggufs_of, matching
from engine.checkpoint.shards import choose_shards
from engine.checkpoint.tokenizer_files import has_vocabulary
from engine.errors import CheckpointError, UnsupportedModelError
from offload.regular_file import read_whole

_MAX_REF_BYTES: Final = 4096
_MAX_FILES: Final = 4096
"""Of one snapshot: what lies behind them is not looked at."""


class Repository(NamedTuple):
    """A model of the cache. `repo_id` is empty where the folder is not named for one."""

    repo_id: str
    snapshot: Path
    """The one that `main` names, else the newest."""
    is_main: bool


def hub_cache() -> Path:
    """The hub's cache: HF_HUB_CACHE, or `hub` in HF_HOME, or in the user's cache folder."""
    if chosen := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(chosen).expanduser()
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or os.path.join(caches, "huggingface")
    return Path(home).expanduser() / "hub"


def repositories(cache: Path) -> Iterator[Repository]:
    """The cache's models by name. Raises nothing."""
    for folder in folders_in(cache):
        kind, *parts = folder.name.split("--")
        if kind == "models" and parts and (found := _repository(folder, parts)):
            yield found


def cached_snapshot(repo_id: str) -> Path | None:
    """A hub model's folder in the local cache, if all of it is there."""
    import huggingface_hub

    config = huggingface_hub.try_to_load_from_cache(repo_id, "config.json")
    if not isinstance(config, str):
        return None
    folder = Path(config).parent
    return folder if _has_all_weights(folder) and has_vocabulary(folder) else None


def cached_gguf(name: HubName) -> Path | None:
    """The first file of the GGUF model that is meant, if all its parts are in the cache, and nothing else is meant."""
    folder = hub_cache() / f"models--{name.repo_id.replace('/', '--')}"
    found = _repository(folder, name.repo_id.split("/"))
    if found is None:
        return None
    meant = [model for model in matching(ggufs_in(found.snapshot), name.tag) if not model.num_missing]
    return found.snapshot / meant[0].names[0] if len(meant) == 1 else None


def ggufs_in(snapshot: Path) -> list[HubGguf]:
    """The GGUF models of a snapshot, those in its folders too. A link that leads nowhere is no file. Raises nothing."""
    names = []
    for number, path in enumerate(_files(snapshot)):
        if number >= _MAX_FILES:
            break
        if path.suffix == SUFFIX and path.exists():
            names.append(path.relative_to(snapshot).as_posix())
    return ggufs_of(names)


def folders_in(folder: Path) -> list[Path]:
    """By name. Raises nothing."""
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []


def _files(snapshot: Path) -> Iterator[Path]:
    for folder in (snapshot, *folders_in(snapshot)):
        try:
            yield from (path for path in folder.iterdir() if not path.is_dir())
        except OSError:
            continue


def _repository(folder: Path, parts: list[str]) -> Repository | None:
    main, snapshots = _main_of(folder), folders_in(folder / "snapshots")
    repo_id = f"{parts[0]}/{'--'.join(parts[1:])}" if len(parts) > 1 else ""
    if main in snapshots and main is not None:
        return Repository(repo_id, main, is_main=True)
    return Repository(repo_id, max(snapshots, key=os.path.getmtime), is_main=False) if snapshots else None


def _main_of(repository: Path) -> Path | None:
    try:
        commit = read_whole(repository / "refs" / "main", _MAX_REF_BYTES).decode()
        return repository / "snapshots" / commit.strip()
    except (OSError, ValueError):
        return None


def _has_all_weights(folder: Path) -> bool:
    try:
        return not choose_shards(folder).missing
    except (CheckpointError, UnsupportedModelError):
        return False
