"""Whatever lies under a name: a regular file is read, and everything else is refused without blocking."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from offload.errors import TraceError, WeightsError
from offload.link.expert_source import FileSource, Span
from offload.policies.eviction.tuned_weights import load_tuned_weights
from offload.regular_file import is_regular, open_regular, read_fully, read_range, read_whole, why
from offload.replay.trace import load_trace


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


UNUSUAL: dict[str, tuple[Callable[[Path], None], str]] = {
    "fifo": (os.mkfifo, "it is a FIFO, not a file"),
    "folder": (Path.mkdir, "it is a folder, not a file"),
    "socket": (bind, "it is a socket, not a file"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "it is a device, not a file"),
    "dangling": (lambda path: path.symlink_to("gone"), "No such file"),
    "circle": (lambda path: path.symlink_to(path.name), "symbolic links"),
    "missing": (lambda path: None, "No such file"),
}


@pytest.mark.parametrize("kind", UNUSUAL)
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make, reason = UNUSUAL[kind]
    path = Path("it")
    make(path)
    assert not is_regular(path)
    with pytest.raises(OSError, match=reason):
        os.close(open_regular(path))
    with pytest.raises(OSError, match=reason) as caught:
        read_whole(path, 100)
    assert reason in why(caught.value)
    with pytest.raises(TraceError, match=f"it cannot be read: .*{reason}"):
        load_trace(path)
    with pytest.raises(WeightsError, match=f"it cannot be read: .*{reason}"):
        load_tuned_weights(path, ("model",))
    with pytest.raises(Exception, match=f"Cannot open it: .*{reason}"):
        FileSource([[(Span("it", 0, 4, 0),)]])


def test_a_file_and_a_link_to_one_are_read(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(b"content")
    (tmp_path / "link").symlink_to("blob")
    assert is_regular(tmp_path / "link")
    assert read_whole(tmp_path / "link", 7) == b"content"
    with pytest.raises(OSError, match="it has 7 bytes, where at most 6 are read"):
        read_whole(tmp_path / "link", 6)


def test_a_name_with_a_zero_byte_is_an_error_of_the_system() -> None:
    with pytest.raises(OSError, match="null byte"):
        open_regular("a\0b")


def test_ranges_are_read_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(range(100)))
    fd = open_regular(tmp_path / "file")
    try:
        assert read_range(fd, 10, 5) == bytes(range(10, 15))
        assert read_range(fd, 200, 0) == b""
        buffers = [bytearray(1) for _ in range(60)]
        assert read_fully(fd, 0, [memoryview(buffer) for buffer in (bytearray(0), *buffers)]) == 60
        assert b"".join(buffers) == bytes(range(60))
        with pytest.raises(EOFError, match="2 bytes too early"):
            read_range(fd, 90, 12)
    finally:
        os.close(fd)
