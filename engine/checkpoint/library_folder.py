"""A folder in which the library's own `from_pretrained` finds exactly the weights that `shards` chose.

The library has rules of its own: it takes `model.safetensors` wherever there is one, and needs an index for anything
else. A comparison with it must be one of the same weights. Light: no torch.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.checkpoint.header import read_header
from engine.checkpoint.shards import INDEX_FILE, SINGLE_FILE, choose_shards


@contextmanager
def folder_for_library(folder: Path) -> Iterator[Path]:
    """The folder itself where the library would choose the same files; else one of links, deleted with the block.

    Raises CheckpointError and UnsupportedModelError, see `choose_shards`, and OSError when no links can be made.
    """
    paths = choose_shards(folder).paths
    if [path.name for path in paths] == _taken_by_library(folder, [path.name for path in paths]):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="moe-chat-") as name:
        links = Path(name)
        for file in folder.iterdir():
            if file.suffix != ".safetensors" and file.name != INDEX_FILE:
                (links / file.name).symlink_to(file.resolve())
        if len(paths) == 1:
            (links / SINGLE_FILE).symlink_to(paths[0].resolve())
        else:
            _link_shards(paths, links)
        yield links


def _taken_by_library(folder: Path, chosen: list[str]) -> list[str]:
    """The names of the files that the library would load; those of an index are `chosen` if it has been followed."""
    if (folder / SINGLE_FILE).is_file():
        return [SINGLE_FILE]
    return chosen if os.path.lexists(folder / INDEX_FILE) else []


def _link_shards(paths: tuple[Path, ...], links: Path) -> None:
    weight_map: dict[str, str] = {}
    for path in paths:
        (links / path.name).symlink_to(path.resolve())
        weight_map |= {tensor.key: path.name for tensor in read_header(path)}
    (links / INDEX_FILE).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}), encoding="utf-8")
