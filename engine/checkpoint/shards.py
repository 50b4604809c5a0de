"""Which files of a folder are the model's weights: chosen here once, for the menu, the load and the hub's cache alike.

The rule, in this order:

1. `model.safetensors.index.json` whose shards are all there: those shards.
2. `model.safetensors`, where it is whole: that file. (An index beside it lacks shards, or cannot be read.)
3. An index that lacks shards, or cannot be read: an error that says so.
4. `model.safetensors`, damaged or not: that file.
5. `NAME-00001-of-00004.safetensors` and so on, without an index: the set, which must be complete.
6. One other safetensors file: that file. More than one: an error, since nothing says which of them is the model.

`consolidated*` files hold the weights once more in their makers' own layout, and `adapter_model*` files change another
model's: neither is ever chosen. Whatever is not chosen is left alone, and a notice says so. Light: no torch.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from engine.checkpoint.header import read_header
from engine.checkpoint.json_file import REFETCH, TENSOR_LIST, read_json_object
from engine.errors import CheckpointError, MoeChatError, UnsupportedModelError
from offload.bounded_json import shown
from offload.regular_file import is_regular

INDEX_FILE: Final = "model.safetensors.index.json"
SINGLE_FILE: Final = "model.safetensors"
_OTHER_LAYOUT = ("consolidated", "adapter_model")
_NUMBERED = re.compile(r"(?P<name>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.safetensors")
_PICKLED = (".bin", ".pt", ".pth", ".ckpt")
_MAX_SHARDS = 2000


class Shards(NamedTuple):
    """The safetensors files of a checkpoint, in order."""

    paths: tuple[Path, ...]
    missing: tuple[str, ...]
    """The names of those that are not there."""
    notices: tuple[str, ...] = ()
    """What the user should know: which weights in the folder are not used."""


def choose_shards(folder: Path) -> Shards:
    """The weights of a folder, by the rule above. A shard that is there may still be damaged.

    Raises CheckpointError for an index that makes no sense and for files among which nothing decides,
    UnsupportedModelError where there is no safetensors file that can be used.
    """
    names = _safetensors_in(folder)
    if os.path.lexists(folder / INDEX_FILE):
        return _with_strays(_by_index(folder), names)
    if SINGLE_FILE in names:
        return _with_strays(Shards((folder / SINGLE_FILE,), ()), names)
    usable = [name for name in names if not name.startswith(_OTHER_LAYOUT)]
    numbered = [found for found in map(_NUMBERED.fullmatch, usable) if found]
    if numbered:
        return _with_strays(_numbered_set(folder, numbered), names)
    if not usable:
        raise _nothing_usable(folder, names)
    if len(usable) > 1:
        raise CheckpointError(
            f"{folder} holds {len(usable)} safetensors files ({_some(usable)}), and no {INDEX_FILE} says which of them "
            "are the model.",
            f"Fetch {INDEX_FILE} as well, or leave only the model's file there.",
        )
    return _with_strays(Shards((folder / usable[0],), ()), names)


def pickled_file(folder: Path) -> str:
    """The name of a file in which weights may be pickled, which is never opened; empty: there is none."""
    return next((path.name for path in sorted(folder.glob("*")) if path.suffix in _PICKLED), "")


def _by_index(folder: Path) -> Shards:
    single = folder / SINGLE_FILE
    try:
        paths = tuple(folder / name for name in _index_names(folder / INDEX_FILE))
    except CheckpointError as error:
        if _is_whole(single):
            return Shards((single,), (), (f"{INDEX_FILE} is not used: {error.message}",))
        raise
    missing = tuple(path.name for path in paths if not _is_there(path))
    if missing and _is_whole(single):
        notice = f"{INDEX_FILE} is not used: {len(missing)} of the {len(paths)} files that it names are missing."
        return Shards((single,), (), (notice,))
    return Shards(paths, missing)


def _index_names(index: Path) -> list[str]:
    """The shards that an index names, in order. Raises CheckpointError."""
    weight_map = read_json_object(index, TENSOR_LIST).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index} cannot be read: its weight_map is no list of tensors.", REFETCH)
    for key, name in weight_map.items():
        if not isinstance(name, str) or not name.endswith(".safetensors") or "\0" in name or len(name) > 255:
            raise CheckpointError(
                f"{index} cannot be read: its weight_map puts {shown(key)} into {shown(name)}.", REFETCH
            )
    names = sorted(set(weight_map.values()))
    outside = next((name for name in names if Path(name).is_absolute() or ".." in Path(name).parts), None)
    if outside is not None:
        raise CheckpointError(f"{index} names a shard outside its folder: {shown(outside)}.", REFETCH)
    if len(names) > _MAX_SHARDS:
        raise CheckpointError(f"{index} cannot be read: it names {len(names)} shards.", REFETCH)
    return names


def _numbered_set(folder: Path, numbered: Iterable[re.Match[str]]) -> Shards:
    """The shards of one numbered set. Raises CheckpointError where there are several."""
    sets = sorted({(found["name"], found["count"]) for found in numbered})
    if len(sets) > 1:
        listed = ", ".join(f"{name}-*-of-{count}" for name, count in sets[:3])
        raise CheckpointError(
            f"{folder} holds several sets of safetensors files ({listed}), and no {INDEX_FILE} says which it is.",
            f"Fetch {INDEX_FILE} as well, or leave only the model's files there.",
        )
    name, count = sets[0]
    if not 1 <= int(count) <= _MAX_SHARDS:
        raise CheckpointError(f"{folder}: {name}-*-of-{count}.safetensors is no set of shards.", REFETCH)
    paths = tuple(folder / f"{name}-{number:05}-of-{count}.safetensors" for number in range(1, int(count) + 1))
    return Shards(paths, tuple(path.name for path in paths if not _is_there(path)))


def _with_strays(shards: Shards, names: Iterable[str]) -> Shards:
    """Adds the notice of what was not chosen."""
    chosen = {path.name for path in shards.paths}
    strays = [name for name in names if name not in chosen]
    if not strays:
        return shards
    return shards._replace(notices=(*shards.notices, f"Not part of the model, and not used: {_some(strays)}."))


def _safetensors_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.safetensors"))


def _is_there(path: Path) -> bool:
    """Whether there is something, if only something else than a file: reading it then says what."""
    try:
        return path.exists()
    except OSError:
        return False


def _is_whole(path: Path) -> bool:
    """Whether the file's header can be read, and the file is as long as that says."""
    if not is_regular(path):
        return False
    try:
        return bool(read_header(path))
    except MoeChatError:
        return False


def _nothing_usable(folder: Path, names: list[str]) -> UnsupportedModelError:
    if names:
        return UnsupportedModelError(
            f"{folder} holds no weights in the layout of transformers, only {_some(names)}.",
            "Use the repository's model*.safetensors files.",
        )
    return UnsupportedModelError(
        f"{folder} holds no .safetensors file.",
        "Only safetensors checkpoints are read; others can run code when loaded.",
    )


def _some(names: list[str]) -> str:
    return ", ".join(name if len(name) <= 60 else f"{name[:57]}..." for name in names[:3]) + (
        ", ..." if len(names) > 3 else ""
    )
