"""Which GGUF files of a hub repository `owner/name:TAG` means. Pure: names in, names out.

A tag is what the end of a file's name says of its quantisation, as in `Model-7B-Q4_K_M.gguf`, or in that of the folder
that it lies in; upper and lower case are the same. A file's whole name, or its name without suffix and part number, is
a tag too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from engine.checkpoint.gguf.location import is_companion
from engine.checkpoint.gguf.split_files import SUFFIX, split_name
from engine.config import format_bytes

_ID: Final = r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*"
_NAME = re.compile(rf"(?P<repo>{_ID})(?::(?P<tag>[\w][\w./-]*))?")
_FORMAT = r"(?:UD-)?(?:I?Q\d+_\w+|T?Q\d_\d|BF16|F16|F32|FP16|FP32|MXFP4\w*|NVFP4\w*)"
_AT_THE_END = re.compile(rf"(?:^|[-_.])(?P<tag>{_FORMAT})$", re.IGNORECASE)
_MOST_LISTED: Final = 24


class HubName(NamedTuple):
    """A hub id, and which of its GGUF models is meant; empty: none was named."""

    repo_id: str
    tag: str = ""

    def __str__(self) -> str:
        return f"{self.repo_id}:{self.tag}" if self.tag else self.repo_id


class HubGguf(NamedTuple):
    """One GGUF model of a repository."""

    names: tuple[str, ...]
    """Of its files in the repository: one, or the parts that are there in order."""
    tag: str
    """`Q4_K_M`; empty where neither the file's name nor its folder's says it."""
    num_missing: int
    """Parts that its names speak of and that are not there."""

    @property
    def stem(self) -> str:
        """The file's name without folder, part number and suffix."""
        path = PurePosixPath(self.names[0])
        part = split_name(path)
        return part.stem if part else path.name.removesuffix(SUFFIX)


def hub_name(text: str) -> HubName | None:
    """None: it is no hub id."""
    found = _NAME.fullmatch(text)
    return HubName(found["repo"], found["tag"] or "") if found else None


def ggufs_of(names: Iterable[str]) -> list[HubGguf]:
    """The GGUF models among a repository's files, by name."""
    groups: dict[tuple[str, str, int], list[str]] = {}
    for name in sorted(names):
        path = PurePosixPath(name)
        if path.suffix == SUFFIX and not is_companion(path.name):
            part = split_name(path)
            key = (str(path.parent), part.stem, part.num_parts) if part else (str(path.parent), path.name, 1)
            groups.setdefault(key, []).append(name)
    return [HubGguf(tuple(found), _tag_of(found[0]), num - len(found)) for (_, _, num), found in groups.items()]


def matching(found: Iterable[HubGguf], tag: str) -> list[HubGguf]:
    """Those that `tag` names; all of them where it is empty."""
    wanted = tag.lower()
    return [model for model in found if not wanted or wanted in _called(model)]


def names_to_type(repo_id: str, found: Iterable[HubGguf]) -> list[str]:
    """For each model the shortest name that means it alone."""
    models = list(found)
    tags = [model.tag.lower() for model in models]
    return [
        str(HubName(repo_id, model.tag if model.tag and tags.count(model.tag.lower()) == 1 else model.names[0]))
        for model in models
    ]


def choices_in_words(repo_id: str, found: Iterable[HubGguf], sizes: Mapping[str, int]) -> str:
    """What can be typed, with sizes where they are known: `owner/name:Q4_K_M (17.3 GiB), ...`."""
    models = list(found)
    listed = []
    for typed, model in zip(names_to_type(repo_id, models), models, strict=True):
        num_bytes = sum(sizes.get(name, 0) for name in model.names)
        listed.append(f"{typed} ({format_bytes(num_bytes)})" if num_bytes else typed)
    more = f" and {len(listed) - _MOST_LISTED} more" if len(listed) > _MOST_LISTED else ""
    return ", ".join(listed[:_MOST_LISTED]) + more


def _tag_of(name: str) -> str:
    path = PurePosixPath(name)
    part = split_name(path)
    for text in (part.stem if part else path.name.removesuffix(SUFFIX), path.parent.name):
        if found := _AT_THE_END.search(text):
            return found["tag"]
    return ""


def _called(model: HubGguf) -> set[str]:
    """Every name that it goes by, in lower case."""
    names = {model.tag, model.tag.removeprefix("UD-"), model.stem, *model.names}
    names |= {PurePosixPath(name).name for name in model.names}
    return {name.lower() for name in names if name}
