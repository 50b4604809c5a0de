"""Reading experts from files."""

import os
import random
import sys

import pytest

from offload import page_cache
from offload.errors import ExpertReadError
from offload.link.expert_source import CACHED, FileSource, Span, bounce_bytes
from offload.link.slot_pool import SlotPool


@pytest.fixture
def shard(tmp_path):
    """A file of 256 different bytes, and what they are."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(bytes(range(256)))
    return str(path)


def read(source, num_bytes, layer=0, expert=0):
    destination = bytearray(num_bytes)
    moved_bytes = source.read_into(layer, expert, memoryview(destination))
    return moved_bytes, bytes(destination)


def test_spans_land_where_they_belong_and_padding_is_left_alone(shard):
    source = FileSource([[(Span(shard, 10, 4, 8), Span(shard, 100, 2, 0))]])
    assert read(source, 14) == (6, bytes([100, 101, 0, 0, 0, 0, 0, 0, 10, 11, 12, 13, 0, 0]))
    source.close()


def test_layers_and_experts_are_told_apart_over_two_files(shard, tmp_path):
    other = tmp_path / "other.safetensors"
    other.write_bytes(b"abcdef")
    source = FileSource(
        [[(Span(shard, 0, 2, 0),), (Span(shard, 2, 2, 0),)], [(Span(str(other), 1, 1, 0), Span(shard, 7, 1, 1))]]
    )
    assert [read(source, 2, *at)[1] for at in ((0, 0), (0, 1), (1, 0))] == [b"\x00\x01", b"\x02\x03", b"b\x07"]
    source.close()


def test_neighbours_in_the_file_are_one_read_whatever_their_order_in_the_slot(shard, monkeypatch):
    calls = []
    real = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, pieces, offset: calls.append(len(pieces)) or real(fd, pieces, offset))
    source = FileSource(
        [[(Span(shard, 20, 4, 0), Span(shard, 16, 4, 4), Span(shard, 24, 4, 8), Span(shard, 28, 4, 12))]]
    )
    calls.clear()
    assert read(source, 16) == (16, bytes([*range(20, 24), *range(16, 20), *range(24, 32)]))
    assert len(calls) == 1, "one system call"
    source.close()


def test_short_reads_are_continued_inside_and_between_pieces(tmp_path, monkeypatch):
    real, content = os.preadv, random.Random(2).randbytes(40960)
    (tmp_path / "weights").write_bytes(content)

    def stingy(fd, pieces, offset):
        return real(fd, [pieces[0][:4096]], offset)

    monkeypatch.setattr(os, "preadv", stingy)
    path = str(tmp_path / "weights")
    source = FileSource([[(Span(path, 10, 20007, 19009), Span(path, 20017, 19009, 0))]])
    assert read(source, 39016) == (39016, content[20017:39026] + content[10:20017])
    source.close()


def test_more_pieces_than_one_call_takes(shard, monkeypatch):
    monkeypatch.setattr("offload.direct_file.MAX_BUFFERS", 2)
    backwards = tuple(Span(shard, i, 1, 9 - i) for i in range(10))
    source = FileSource([[backwards]])
    assert read(source, 10) == (10, bytes(reversed(range(10))))
    source.close()


def test_a_truncated_file_names_file_layer_and_expert(shard):
    source = FileSource([[(), (Span(shard, 250, 10, 0),)]])
    with pytest.raises(
        ExpertReadError, match=r"expert 1 of MoE layer 0 .*model.safetensors: the file ends 4 bytes"
    ) as caught:
        read(source, 10, expert=1)
    assert caught.value.hint
    source.close()


def test_an_io_error_is_an_expert_read_error(shard, monkeypatch):
    source = FileSource([[(Span(shard, 0, 4, 0),)]])

    def broken(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "preadv", broken)
    with pytest.raises(ExpertReadError, match="Input/output error"):
        read(source, 4)
    source.close()


def test_a_slot_too_small_is_an_error_and_not_a_short_expert(shard):
    source = FileSource([[(Span(shard, 0, 8, 0),)]])
    with pytest.raises(ExpertReadError, match="do not fit into a slot of 7 bytes"):
        read(source, 7)
    source.close()


def test_a_missing_file_is_told_at_once_and_nothing_stays_open(shard, tmp_path):
    open_before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    with pytest.raises(ExpertReadError, match=r"Cannot open .*gone"):
        FileSource([[(Span(shard, 0, 1, 0), Span(str(tmp_path / "gone"), 0, 1, 1))]])
    if open_before is not None:
        assert len(os.listdir("/proc/self/fd")) == open_before


def test_a_negative_span_is_refused(shard):
    with pytest.raises(ValueError, match="impossible span"):
        FileSource([[(Span(shard, -1, 4, 0),)]])


def test_close_twice(shard):
    source = FileSource([[(Span(shard, 0, 1, 0),)]])
    source.close()
    source.close()


def test_it_says_how_it_reads_and_what_that_takes(shard, tmp_path, monkeypatch):
    spans = [[(Span(shard, 0, 7, 0), Span(shard, 7, 9, 100))]]
    source = FileSource(spans)
    assert source.reads == "direct" or "buffered" in source.reads
    assert source.bounce_bytes_per_thread == bounce_bytes(spans[0]) == 48 * 4096
    source.close()
    monkeypatch.setattr("offload.direct_file._O_DIRECT", 0)
    source = FileSource(spans)
    assert source.reads == f"buffered ({shard}: this system has no O_DIRECT)"
    assert read(source, 109)[1] == bytes([*range(7), *bytes(93), *range(7, 16)])
    source.close()


@pytest.mark.skipif(sys.platform != "linux", reason="the page cache is asked about by mincore")
def test_files_that_may_stay_in_the_page_cache_do(tmp_path):
    path, content = tmp_path / "weights", random.Random(9).randbytes(65_536)
    path.write_bytes(content)
    source = FileSource([[(Span(str(path), 4096, 8192, 0), Span(str(path), 20_000, 100, 8192))]], is_cached=True)
    page_cache.drop(path)
    assert read(source, 8292) == (8292, content[4096:12_288] + content[20_000:20_100])
    assert source.reads == CACHED
    assert page_cache.cached_bytes(path) >= 8192
    source.close()


def random_expert(chance, path, size):
    """Spans that do not overlap in the slot, some of them adjacent in the file, up to its end; and the slot's bytes."""
    spans, slot_offset, file_offset = [], 0, chance.randrange(size)
    for _ in range(chance.randint(1, 6)):
        file_offset = chance.choice([file_offset % size, chance.randrange(size), chance.randrange(size) // 4096 * 4096])
        num_bytes = min(chance.choice([0, 5, 4096, 12288, chance.randint(0, 30000)]), size - file_offset)
        slot_offset += chance.choice([0, 0, 64, (file_offset - slot_offset) % 4096])
        spans.append(Span(path, file_offset, num_bytes, slot_offset))
        slot_offset, file_offset = slot_offset + num_bytes, file_offset + num_bytes
    chance.shuffle(spans)
    return tuple(spans), slot_offset


@pytest.mark.parametrize("is_direct", [True, False])
def test_slots_hold_the_files_bytes_whatever_the_spans(tmp_path, monkeypatch, is_direct):
    if not is_direct:
        monkeypatch.setattr("offload.direct_file._O_DIRECT", 0)
    chance, contents = random.Random(4), {}
    for size in (3, 4096, 150_001):
        path = tmp_path / str(size)
        path.write_bytes(contents.setdefault(str(path), chance.randbytes(size)))
    experts = [random_expert(chance, path, len(content)) for path, content in contents.items() for _ in range(60)]
    source, pool = FileSource([[spans for spans, _ in experts]]), SlotPool((1,), (300_000,))
    for expert, (spans, slot_bytes) in enumerate(experts):
        for slot in (pool.memory(0)[:slot_bytes], memoryview(bytearray(slot_bytes))):
            slot[:] = expected = bytearray(b"\x55" * slot_bytes)
            for path, offset, num_bytes, at in spans:
                expected[at : at + num_bytes] = contents[path][offset : offset + num_bytes]
            assert source.read_into(0, expert, slot) == sum(span.num_bytes for span in spans)
            assert slot == expected
    source.close()


@pytest.mark.parametrize("is_direct", [True, False])
def test_pages_of_a_slot_that_one_span_owns_are_one_read_without_spare_memory(tmp_path, monkeypatch, is_direct):
    if not is_direct:
        monkeypatch.setattr("offload.direct_file._O_DIRECT", 0)
    path, content = tmp_path / "weights", random.Random(7).randbytes(40_000)
    path.write_bytes(content)
    spans = (Span(str(path), 4196, 8192, 100), Span(str(path), 28_772, 11_228, 12_288 + 100))  # the second: to the end
    source, pool = FileSource([[spans]], may_fill_pages=True), SlotPool((1,), (24_576,))
    calls, real = [], os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, pieces, offset: calls.append(len(pieces)) or real(fd, pieces, offset))
    slot = pool.memory(0)
    assert [source.read_part(0, 0, part, slot) for part in range(source.num_parts(0, 0))] == [8192, 11_228]
    assert calls == [1, 1]
    assert slot[100:8292] == content[4196:12_388]
    assert slot[12_388:23_616] == content[28_772:]
    unaligned = memoryview(bytearray(24_577))[1:]
    assert source.read_into(0, 0, unaligned) == 19_420
    assert unaligned[100:8292] == content[4196:12_388], "elsewhere it reads as ever"
    path.write_bytes(content[:30_000])
    with pytest.raises(ExpertReadError, match="the file ends 10000 bytes too early"):
        source.read_part(0, 0, 1, slot)
    source.close()


def test_spans_that_share_a_page_of_the_slot_are_not_read_by_pages(tmp_path):
    path, content = tmp_path / "weights", random.Random(8).randbytes(30_000)
    path.write_bytes(content)
    source = FileSource(
        [[(Span(str(path), 100, 4096, 100), Span(str(path), 12_288 + 200, 4096, 4296))]], may_fill_pages=True
    )
    slot = SlotPool((1,), (12_288,)).memory(0)
    source.read_into(0, 0, slot)
    assert slot[100:4196] == content[100:4196]
    assert slot[4296:8392] == content[12_488:16_584]
    source.close()
