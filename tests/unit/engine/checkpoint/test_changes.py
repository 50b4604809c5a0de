"""Files in use that change are noticed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.checkpoint.changes import changed_file, require_unchanged, stamp_files
from engine.errors import CheckpointError


def overwrite_in_place(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"other")
    state = path.stat()
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 1))


def replace(path: Path) -> None:
    state, new = path.stat(), path.with_name("new")
    new.write_bytes(path.read_bytes())
    os.utime(new, ns=(state.st_atime_ns, state.st_mtime_ns))
    new.replace(path)


CHANGES: dict[str, Callable[[Path], object]] = {
    "overwritten": overwrite_in_place,
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "replaced by a copy": replace,
    "removed": Path.unlink,
    "something else": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_file_that_changed_is_named(tmp_path: Path, change: str) -> None:
    paths = [tmp_path / name for name in ("a", "b", "c")]
    for path in paths:
        path.write_bytes(b"content")
    stamps = stamp_files(paths)
    assert changed_file(stamps) is None
    require_unchanged(stamps)
    CHANGES[change](paths[1])
    assert changed_file(stamps) == paths[1]
    with pytest.raises(CheckpointError, match="b was changed while the model was in use") as caught:
        require_unchanged(stamps)
    assert caught.value.hint


def test_through_a_link_it_is_the_file_that_counts(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(b"content")
    (tmp_path / "link").symlink_to("blob")
    stamps = stamp_files([tmp_path / "link"])
    (tmp_path / "blob").write_bytes(b"changed")
    assert changed_file(stamps) == tmp_path / "link" or stamps == stamp_files([tmp_path / "link"])
