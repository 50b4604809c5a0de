"""The parts of a model that is split over several GGUF files: `NAME-00001-of-00003.gguf` and so on.

Source: llama.cpp's `gguf-split`. The first part holds the metadata; each says its number and how many there are.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePath
from typing import Final, NamedTuple

from engine.checkpoint.json_file import REFETCH
from engine.errors import CheckpointError

SUFFIX: Final = ".gguf"
_NUMBERED = re.compile(r"(?P<name>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_MAX_PARTS = 1000


class MissingParts(CheckpointError):
    """Parts of a split model are not there."""


class SplitName(NamedTuple):
    """What a part's name says: the model's name, the part's number from 1 on, and how many parts there are."""

    stem: str
    number: int
    num_parts: int

    def part(self, number: int) -> str:
        """The file name of another part."""
        return f"{self.stem}-{number:05}-of-{self.num_parts:05}{SUFFIX}"


def split_name(path: PurePath) -> SplitName | None:
    """None: the name is no part's."""
    found = _NUMBERED.fullmatch(path.name)
    return SplitName(found["name"], int(found["number"]), int(found["count"])) if found else None


def part_paths(path: Path) -> tuple[Path, ...]:
    """All parts of the model that `path` is a part of, in order; `path` alone where it is the whole.

    Raises CheckpointError for a part that is not there, and for numbers that make no sense.
    """
    name = split_name(path)
    if name is None:
        return (path,)
    if not 1 <= name.number <= name.num_parts <= _MAX_PARTS:
        raise CheckpointError(f"{path.name} says that it is part {name.number} of {name.num_parts}.", REFETCH)
    paths = tuple(path.with_name(name.part(number)) for number in range(1, name.num_parts + 1))
    missing = [part.name for part in paths if not os.path.lexists(part)]
    if missing:
        listed = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise MissingParts(
            f"{len(missing)} of the {name.num_parts} parts of {name.stem} {'is' if len(missing) == 1 else 'are'} "
            f"missing in {path.parent}: {listed}.",
            "Fetch the missing parts into the same folder.",
        )
    return paths
