"""Reads past the page cache: the same bytes as any other read, into buffers that lie anywhere."""

from __future__ import annotations

import fcntl
import os
import random
import threading
from pathlib import Path

import pytest

from offload import page_cache
from offload.direct_file import DirectFile, spare_bytes
from offload.page_memory import page_buffer

PAGE = 4096


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """A file that ends within a page, and what is in it."""
    content = random.Random(5).randbytes(40 * PAGE + 1234)
    path = tmp_path_factory.mktemp("files") / "weights"
    path.write_bytes(content)
    return path, content


def lengths_of(chance: random.Random, total: int) -> list[int]:
    """`total` bytes in up to 6 buffers, some empty, many of whole pages."""
    cuts = sorted(chance.choice([chance.randint(0, total), chance.randint(0, total) // PAGE * PAGE]) for _ in range(5))
    return [end - start for start, end in zip([0, *cuts], [*cuts, total], strict=True)]


@pytest.mark.parametrize("is_direct", [True, False])
def test_buffers_anywhere_get_the_files_bytes_and_nothing_beside_them_changes(
    stored: tuple[Path, bytes], is_direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, content = stored
    chance, memory = random.Random(11), page_buffer(60 * PAGE)
    if not is_direct:
        monkeypatch.setattr("offload.direct_file._O_DIRECT", 0)
    with DirectFile(path) as file:
        for _ in range(120):
            offset = chance.choice([0, chance.randrange(len(content)), chance.randrange(40) * PAGE])
            total = chance.choice([len(content) - offset, chance.randint(0, len(content) - offset)])
            memory[:] = background = b"\xaa" * len(memory)
            expected, buffers, at, done = bytearray(background), [], 0, 0
            for length in lengths_of(chance, total):
                gap = chance.choice([0, chance.randint(0, 2 * PAGE), -at % PAGE, (offset + done - at) % PAGE])
                at = min(at + gap, len(memory) - (total - done))
                buffers.append(memory[at : at + length])
                expected[at : at + length] = content[offset + done : offset + done + length]
                at, done = at + length, done + length
            chance_spare = page_buffer(spare_bytes([len(buffer) for buffer in buffers]))
            assert file.read(offset, buffers, chance.choice([None, chance_spare])) == total
            assert bytes(memory) == bytes(expected)


def test_a_run_that_lies_alike_within_a_page_lands_in_place_but_for_its_ends(
    stored: tuple[Path, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, content = stored
    memory, seen = page_buffer(20 * PAGE), []
    real = os.preadv
    with DirectFile(path) as file:
        if file.refusal is not None:
            pytest.skip(file.refusal)
        monkeypatch.setattr("ctypes.memmove", None)
        monkeypatch.setattr(
            os, "preadv", lambda fd, to, at: seen.append([len(part) for part in to]) or real(fd, to, at)
        )
        file.read(3 * PAGE + 100, [memory[100 : 100 + 9 * PAGE]])
    assert seen == [[PAGE, 8 * PAGE, PAGE]]
    assert bytes(memory[100 : 100 + 9 * PAGE]) == content[3 * PAGE + 100 : 12 * PAGE + 100]


@pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="this system has no O_DIRECT")
def test_reads_of_all_threads_and_a_refusal_between_them_give_the_files_bytes(
    stored: tuple[Path, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, content = stored
    real, wrong, refused = os.preadv, [], threading.Event()

    def refusing(fd: int, to: list[memoryview], at: int) -> int:
        if refused.is_set() and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(22, "Invalid argument")
        return real(fd, to, at)

    monkeypatch.setattr(os, "preadv", refusing)
    with DirectFile(path) as file:

        def work(seed: int) -> None:
            chance = random.Random(seed)
            for number in range(60):
                if number == 30:
                    refused.set()
                offset, buffer = chance.randrange(20 * PAGE), bytearray(20 * PAGE)
                file.read(offset, [memoryview(buffer)])
                wrong.extend([offset] if buffer != content[offset : offset + len(buffer)] else [])

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert file.refusal == "its file system refuses direct reads: Invalid argument"


@pytest.mark.parametrize("is_direct", [True, False])
def test_reads_leave_nothing_in_the_page_cache(
    stored: tuple[Path, bytes], is_direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, content = stored
    if not is_direct:
        monkeypatch.setattr("offload.direct_file._O_DIRECT", 0)
    page_cache.drop(path)
    if page_cache.cached_bytes(path):
        pytest.skip("the system keeps these files in memory")
    with DirectFile(path) as file:
        file.probe()
        if is_direct and file.refusal is not None:
            pytest.skip(file.refusal)
        for offset in (7, 5 * PAGE):
            assert file.read(offset, [memoryview(bytearray(len(content) - offset))]) == len(content) - offset
    assert page_cache.cached_bytes(path) == 0
    assert path.read_bytes() == content
    assert page_cache.cached_bytes(path) == 41 * PAGE


@pytest.mark.parametrize("offset", [0, 40 * PAGE, 40 * PAGE + 1000])
def test_a_file_that_ends_too_early_says_how_much_is_missing(stored: tuple[Path, bytes], offset: int) -> None:
    path, content = stored
    buffer = bytearray(len(content) - offset + 3)
    with DirectFile(path) as file, pytest.raises(EOFError, match="ends 3 bytes too early"):
        file.read(offset, [memoryview(buffer)])


def test_a_closed_file_cannot_be_read(stored: tuple[Path, bytes]) -> None:
    file = DirectFile(stored[0])
    file.close()
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.read(0, [memoryview(bytearray(10))])
