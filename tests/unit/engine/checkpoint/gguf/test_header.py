"""GGUF headers: what the `gguf` package writes is read; everything else is refused, by file and key."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from engine.checkpoint.gguf.header import read_gguf
from engine.checkpoint.gguf.summary import require_runnable
from engine.checkpoint.gguf.types import TYPES
from engine.checkpoint.gguf.values import Strings
from engine.errors import CheckpointError, MoeChatError, UnsupportedModelError
from tests.unit.engine.checkpoint.gguf import raw_gguf as raw
from tests.unit.engine.checkpoint.gguf.raw_gguf import ARCHITECTURE, Info, key, listed, number, text, write


def test_sizes_of_types_are_those_of_the_gguf_package() -> None:
    known = {kind.value: (kind.name, *gguf.constants.GGML_QUANT_SIZES[kind]) for kind in gguf.GGMLQuantizationType}
    known[9] = ("Q8_1", 32, 36)  # ggml's own size since its scales are fp16; never in a file
    assert {number: tuple(known) for number, known in TYPES.items() if number != 42} == known


def written(path: Path, **options: Any) -> Path:
    writer = gguf.GGUFWriter(path, "qwen3moe", **options)
    writer.add_block_count(3)
    writer.add_float32("qwen3moe.rope.freq_base", 1e6)
    writer.add_bool("flag", True)
    writer.add_string("name", "größer")
    writer.add_array("texts", ["a", "", "日本"])
    writer.add_array("numbers", [1, -2, 3])
    writer.add_array("floats", [0.5, 1.5])
    rng = np.random.default_rng(0)
    writer.add_tensor("a.weight", rng.random((4, 32), np.float32))
    writer.add_tensor("b.weight", rng.random((2, 64), np.float32).astype(np.float16))
    quantised = gguf.quants.quantize(rng.random((3, 2, 32), np.float32), gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("c.weight", quantised, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_what_the_package_writes(tmp_path: Path) -> None:
    path = written(tmp_path / "a.gguf")
    file = read_gguf(path)
    assert (file.architecture, file.paths) == ("qwen3moe", (path,))
    values = file.metadata
    assert (values["qwen3moe.block_count"], values["flag"], values["name"]) == (3, True, "größer")
    assert values["qwen3moe.rope.freq_base"] == pytest.approx(1e6)
    texts = values["texts"]
    assert isinstance(texts, Strings)
    assert texts.decode() == ["a", "", "日本"]
    assert list(values["numbers"]) == [1, -2, 3]  # type: ignore[arg-type]
    assert list(values["floats"]) == [0.5, 1.5]  # type: ignore[arg-type]
    reader = gguf.GGUFReader(path)
    assert len(file.tensors) == len(reader.tensors) == 3
    for theirs in reader.tensors:
        ours = file.tensors[theirs.name]
        assert ours.shape == tuple(theirs.shape)
        assert (ours.type_id, ours.type_name) == (theirs.tensor_type.value, theirs.tensor_type.name)
        assert (ours.file_offset, ours.num_bytes) == (theirs.data_offset, theirs.n_bytes)


def split(folder: Path) -> list[Path]:
    written(folder / "m.gguf", split_max_tensors=1)
    return sorted(folder.glob("m-*.gguf"))


@pytest.mark.parametrize("named", [0, 1, 2])
def test_any_part_of_a_split_model_is_all_of_it(tmp_path: Path, named: int) -> None:
    paths = split(tmp_path)
    file = read_gguf(paths[named])
    assert (file.path, file.paths) == (paths[named], tuple(paths))
    assert [tensor.path for tensor in file.tensors.values()] == paths
    assert file.metadata["qwen3moe.block_count"] == 3


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    paths = split(tmp_path)
    paths[1].unlink()
    with pytest.raises(CheckpointError, match=r"1 of the 3 parts of m is missing .*m-00002-of-00003\.gguf"):
        read_gguf(paths[0])


def test_renamed_and_exchanged_parts(tmp_path: Path) -> None:
    paths = split(tmp_path)
    renamed = tmp_path / "one.gguf"
    renamed.write_bytes(paths[0].read_bytes())
    with pytest.raises(CheckpointError, match=r"is part 1 of a model of 3 parts") as caught:
        read_gguf(renamed)
    assert "NAME-00001-of-00003.gguf" in caught.value.hint
    paths[1].replace(renamed)
    paths[2].replace(paths[1])
    renamed.replace(paths[2])
    with pytest.raises(CheckpointError, match=r"part 2 of 3; split\.no is 2"):
        read_gguf(paths[0])
    with pytest.raises(CheckpointError, match="part 4 of 3"):
        read_gguf(tmp_path / "m-00004-of-00003.gguf")


def test_150_000_strings_take_no_noticeable_time(tmp_path: Path) -> None:
    words = b"".join(text(f"word{number}") for number in range(150_000))
    path = write(tmp_path / "a.gguf", [ARCHITECTURE, listed("tokens", raw.TEXT, 150_000, words)])
    begin = time.process_time()
    tokens = read_gguf(path).metadata["tokens"]
    assert isinstance(tokens, Strings)
    assert tokens.decode()[-1] == "word149999"
    assert time.process_time() - begin < 2


def test_a_type_that_is_not_known_is_read_and_refused_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.gguf", infos=[Info(kind=77), Info("b.weight", kind=4)])
    file = read_gguf(path)
    assert file.tensors["a.weight"].type_name == "type 77"
    with pytest.raises(UnsupportedModelError, match=r"'a\.weight' is stored as type 77"):
        require_runnable(file)


def pack(form: str, *values: float) -> bytes:
    return struct.pack(f"<{form}", *values)


DAMAGED: list[tuple[str, dict[str, Any], str]] = [
    ("magic", {"magic": b"ggjt"}, "no GGUF file: it begins with b'ggjt'"),
    ("version 1", {"version": pack("I", 1)}, "version 1"),
    ("version 4", {"version": pack("I", 4)}, "version 4"),
    ("big-endian", {"version": struct.pack(">I", 3)}, "big-endian"),
    ("many keys", {"num_keys": 1 << 60}, "claims 1152921504606846976 keys"),
    ("more keys than bytes", {"num_keys": 60_000}, "claims 60000 keys, more than a file of"),
    ("many tensors", {"num_tensors": 1 << 62}, "tensors"),
    ("more tensors than bytes", {"num_tensors": 200_000}, "more than a file"),
    ("one tensor too many", {"infos": [Info()], "num_tensors": 2, "data_bytes": 256}, "tensor"),
    ("keys end early", {"num_keys": 2, "data_bytes": 64}, "is no name of a key"),
    ("no architecture", {"keys": [number("a", 1)]}, r"general\.architecture is None"),
    ("architecture a number", {"keys": [number("general.architecture", 1)]}, r"general\.architecture is 1"),
    ("key twice", {"keys": [ARCHITECTURE, ARCHITECTURE]}, "'general.architecture' is there twice"),
    ("key not UTF-8", {"keys": [key(b"\xff", raw.U8, b"1")]}, "the name of a key is not UTF-8"),
    ("long key", {"keys": [number("k" * 70_000, 1)]}, "70000 bytes"),
    ("text too long", {"keys": [key("t", raw.TEXT, pack("Q", 1 << 40))]}, "'t' has 1099511627776 bytes"),
    ("text beyond the end", {"keys": [key("t", raw.TEXT, pack("Q", 5000))]}, "is cut off: the header"),
    ("text not UTF-8", {"keys": [key("t", raw.TEXT, text(b"\xc3("))]}, "'t' is not UTF-8"),
    ("no such type", {"keys": [key("t", 13, b"")], "data_bytes": 99}, "'t' is of the type 13"),
    ("bool of 2", {"keys": [key("t", raw.BOOL, b"\2")]}, "holds 2, where true or false"),
    ("long list", {"keys": [listed("t", raw.U8, 1 << 61, b"")], "data_bytes": 99}, "where at most"),
    ("list beyond the end", {"keys": [listed("t", raw.F32, 1000, b"")], "data_bytes": 99}, "claims 1000 values"),
    ("string beyond the end", {"keys": [listed("t", raw.TEXT, 1, pack("Q", 1 << 63))]}, "is cut off: a string of 't'"),
    ("list of lists", {"keys": [listed("t", raw.LIST, 1, bytes(40))]}, "list of lists"),
    ("list of nothing known", {"keys": [listed("t", 99, 1, bytes(40))]}, "list of the type 99"),
    ("alignment of 48", {"keys": [ARCHITECTURE, number("general.alignment", 48)]}, "alignment is 48"),
    ("alignment of 0", {"keys": [ARCHITECTURE, number("general.alignment", 0)]}, "alignment is 0"),
    ("no dimension", {"infos": [Info(shape=())], "data_bytes": 256}, "0 dimensions"),
    ("five dimensions", {"infos": [Info(shape=(1,) * 5)], "data_bytes": 256}, "5 dimensions"),
    ("empty tensor", {"infos": [Info(shape=(32, 0))], "data_bytes": 256}, "makes no sense"),
    ("overflow", {"infos": [Info(shape=(1 << 32, 1 << 32))], "data_bytes": 256}, "makes no sense"),
    ("half a block", {"infos": [Info(shape=(40,), kind=8)], "data_bytes": 256}, "whole blocks of 32"),
    ("offset not aligned", {"infos": [Info(offset=16)], "data_bytes": 512}, "no multiple of 32"),
    ("overlap", {"infos": [Info(), Info("b", offset=32)], "data_bytes": 512}, "'a.weight' and 'b' overlap"),
    ("tensor twice", {"infos": [Info(), Info(offset=256)], "data_bytes": 512}, "'a.weight' is there twice"),
    ("long tensor name", {"infos": [Info("n" * 300)], "data_bytes": 512}, "300 bytes"),
    ("tensor name not UTF-8", {"infos": [Info(b"\xff")], "data_bytes": 512}, "name of a tensor is not UTF-8"),
    ("cut off", {"infos": [Info(offset=1 << 20)], "data_bytes": 512}, r"is cut off: \d+ of \d+ bytes"),
    ("part of three", {"keys": [ARCHITECTURE, number("split.count", 3), number("split.no", 1)]}, "part 2 of a model"),
    ("one part in two", {"keys": [ARCHITECTURE, number("split.count", 0)]}, r"split\.count 0"),
]


@pytest.mark.parametrize(("options", "message"), [row[1:] for row in DAMAGED], ids=[row[0] for row in DAMAGED])
def test_damaged_headers(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    path = write(tmp_path / "a.gguf", **options)
    with pytest.raises(MoeChatError, match=message) as caught:
        read_gguf(path)
    assert str(path) in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("num_bytes", [0, 3, 4, 10, 30, 60])
def test_a_file_that_ends_in_its_header(tmp_path: Path, num_bytes: int) -> None:
    path = write(tmp_path / "a.gguf", infos=[Info()], data_bytes=256)
    os.truncate(path, num_bytes)
    with pytest.raises(CheckpointError, match=r"cut off|no GGUF file|claims"):
        read_gguf(path)


def test_a_cut_off_download_says_how_much_is_there(tmp_path: Path) -> None:
    path = write(tmp_path / "a.gguf", infos=[Info()], data_bytes=256)
    whole = path.stat().st_size
    os.truncate(path, whole - 100)
    with pytest.raises(CheckpointError, match=rf"a\.gguf is cut off: {whole - 100} of {whole} bytes"):
        read_gguf(path)


def test_a_pointer_of_git_lfs(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_text("version https://git-lfs.github.com/spec/v1\nsize 18000000000\n")
    with pytest.raises(CheckpointError, match="Git LFS pointer"):
        read_gguf(path)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file(tmp_path: Path, make: Any) -> None:
    make(tmp_path / "a.gguf")
    with pytest.raises(CheckpointError, match=r"it is a (FIFO|folder), not a file"):
        read_gguf(tmp_path / "a.gguf")
    with pytest.raises(CheckpointError, match="No such file"):
        read_gguf(tmp_path / "b.gguf")


def test_other_alignments(tmp_path: Path) -> None:
    for alignment in (1, 32, 4096):
        keys: Sequence[bytes] = (ARCHITECTURE, number("general.alignment", alignment))
        path = write(tmp_path / "a.gguf", keys, [Info()], data_bytes=256, alignment=alignment)
        assert read_gguf(path).tensors["a.weight"].file_offset == path.stat().st_size - 256
