"""Checkpoints are untrusted input: whatever their headers claim, the answer is an error that names the file."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from engine.checkpoint.header import DTYPE_BYTES
from engine.checkpoint.index import DTYPES, read_header, read_index
from engine.checkpoint.shards import INDEX_FILE
from engine.checkpoint.stored_tensors import checkpoint_files
from engine.errors import CheckpointError, UnsupportedModelError
from offload import page_cache

SOUND = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}


def write(path: Path, header: object, num_data_bytes: int = 16) -> Path:
    """A safetensors file with this header (bytes are taken as they are) and zeros as its data."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(num_data_bytes))
    return path


def test_what_a_sound_file_holds(tmp_path: Path) -> None:
    values = {"a": torch.arange(6, dtype=torch.float32).view(3, 2), "b": torch.tensor(5, dtype=torch.int64)}
    save_file(values, tmp_path / "model.safetensors")
    entries = read_index(tmp_path)
    assert {key: entry.shape for key, entry in entries.items()} == {"a": (3, 2), "b": ()}
    assert all(torch.equal(entries[key].read(), value) for key, value in values.items())
    assert torch.equal(entries["a"].read(1, 2), values["a"][1:3])


def test_reading_a_tensor_leaves_the_page_cache_as_it_was(tmp_path: Path) -> None:
    values, path = {"a": torch.arange(60_001, dtype=torch.float32)}, tmp_path / "model.safetensors"
    save_file(values, path)
    entry = read_index(tmp_path)["a"]
    page_cache.drop(path)
    before = page_cache.cached_bytes(path)
    assert torch.equal(entry.read(), values["a"])
    assert page_cache.cached_bytes(path) == before


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"x": SOUND | {"data_offsets": [0, 32], "shape": [2, 4]}}, "truncated: 'x'"),
        ({"x": SOUND | {"data_offsets": [1 << 70, (1 << 70) + 16]}}, "truncated: 'x'"),
        ({"x": SOUND, "y": SOUND | {"data_offsets": [8, 16], "shape": [2]}}, "overlap"),
        ({"x": SOUND | {"data_offsets": [0, 8], "shape": [2]}}, "8 bytes after 'x' belong to no tensor"),
        ({"x": SOUND | {"data_offsets": [8, 16], "shape": [2]}}, "8 bytes before 'x' belong to no tensor"),
        ({"x": SOUND | {"shape": [2, 3]}}, r"shape \[2, 3\] cannot be 16 bytes"),
        ({"x": SOUND | {"shape": [1 << 40, 1 << 40]}}, "cannot be 16 bytes"),
        ({"x": SOUND | {"data_offsets": [-16, 0]}}, "'x' makes no sense"),
        ({"x": SOUND | {"data_offsets": [16, 0]}}, "'x' makes no sense"),
        ({"x": SOUND | {"data_offsets": [0]}}, "'x' makes no sense"),
        ({"x": SOUND | {"data_offsets": [False, 16]}}, "'x' makes no sense"),
        ({"x": SOUND | {"data_offsets": [0.0, 16.0]}}, "'x' makes no sense"),
        ({"x": SOUND | {"data_offsets": "01"}}, "'x' makes no sense"),
        ({"x": SOUND | {"shape": [-2, -2]}}, "'x' makes no sense"),
        ({"x": SOUND | {"shape": [True, 4]}}, "'x' makes no sense"),
        ({"x": SOUND | {"shape": [4.0]}}, "'x' makes no sense"),
        ({"x": SOUND | {"shape": None}}, "'x' makes no sense"),
        ({"x": SOUND | {"shape": "22"}}, "'x' makes no sense"),
        ({"x": SOUND | {"dtype": ["F32"]}}, "'x' makes no sense"),
        ({"x": SOUND | {"dtype": None}}, "'x' makes no sense"),
        ({"x": {"dtype": "F32"}}, "'x' makes no sense"),
        ({"x": [1, 2]}, "'x' makes no sense"),
        ({"x": None}, "'x' makes no sense"),
        ([SOUND], "it is a list, not a JSON object"),
        (b"{", "not valid JSON"),
        (b"\xff\xfe\x00", "byte 0 is not UTF-8 text"),
        (b"", "not valid JSON"),
        (b"[" * 100_000, "nested more than 8 deep"),
        (b'{"x": ' * 20_000, "nested more than 8 deep"),
        (b'{"x": ' + b"9" * 5000 + b"}", "a number of 5000 digits"),
        (b'{"x": {"dtype": "F32", "shape": [NaN], "data_offsets": [0, 16]}}', "holds NaN"),
        (b'{"x": %b, "x": %b}' % ((json.dumps(SOUND).encode(),) * 2), "'x' is there twice"),
    ],
)
def test_a_lying_header(tmp_path: Path, header: object, message: str) -> None:
    path = write(tmp_path / "model.safetensors", header)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_header(path)
    assert str(path) in caught.value.message
    assert caught.value.hint


def test_an_unknown_dtype_is_not_supported_rather_than_damaged(tmp_path: Path) -> None:
    path = write(tmp_path / "model.safetensors", {"x": SOUND | {"dtype": "F4"}})
    with pytest.raises(UnsupportedModelError, match=r"model\.safetensors: 'x' is stored as 'F4'"):
        read_header(path)


def test_a_header_that_claims_to_be_a_byte_shorter_would_shift_every_value(tmp_path: Path) -> None:
    path = write(tmp_path / "model.safetensors", json.dumps({"x": SOUND}).encode() + b" ")
    content = path.read_bytes()
    path.write_bytes(struct.pack("<Q", int.from_bytes(content[:8], "little") - 1) + content[8:])
    with pytest.raises(CheckpointError, match="1 bytes after 'x' belong to no tensor"):
        read_header(path)


@pytest.mark.parametrize("claimed", [17, 1 << 31, (1 << 64) - 1])
def test_a_header_longer_than_the_file(tmp_path: Path, claimed: int) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", claimed) + b"{}" + bytes(14))
    with pytest.raises(CheckpointError, match=f"claims {claimed} bytes; the file has 24"):
        read_header(path)


@pytest.mark.parametrize("content", [b"", b"1234567"])
def test_a_file_too_short_for_a_header(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"model\.safetensors is too short"):
        read_header(path)


def test_empty_tensors_overlap_nothing(tmp_path: Path) -> None:
    empty = {"dtype": "F32", "shape": [0, 3], "data_offsets": [8, 8]}
    entries = read_header(write(tmp_path / "model.safetensors", {"x": SOUND, "e": empty, "__metadata__": {"a": "b"}}))
    assert [entry.key for entry in entries] == ["x", "e"]
    assert entries[1].read().shape == (0, 3)


def test_a_file_cut_short_after_its_header_was_read(tmp_path: Path) -> None:
    path = write(tmp_path / "model.safetensors", {"x": SOUND})
    (entry,) = read_header(path)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is truncated.* 4 bytes too early"):
        entry.read()
    path.unlink()
    with pytest.raises(CheckpointError, match=r"model\.safetensors: No such file"):
        entry.read()


def test_types_are_known_alike_with_and_without_torch() -> None:
    assert {name: dtype.itemsize for name, dtype in DTYPES.items()} == DTYPE_BYTES


def test_a_long_name_is_shortened(tmp_path: Path) -> None:
    path = write(tmp_path / "model.safetensors", {"x" * 5000: SOUND | {"shape": [3]}})
    with pytest.raises(CheckpointError, match=r"xxx'\.\.\. \(5000 characters\)") as caught:
        read_header(path)
    assert len(caught.value.message) < len(str(path)) + 250


def test_many_keys_and_one_of_them_twice_take_no_longer_than_they_are_many(tmp_path: Path) -> None:
    entry = json.dumps(SOUND | {"shape": [0], "data_offsets": [0, 0]}).encode()
    keys = [b'"key%d": %b' % (number, entry) for number in range(40_000)]
    began_s = time.process_time()
    with pytest.raises(CheckpointError, match="'key39999' is there twice"):
        read_header(write(tmp_path / "model.safetensors", b"{%b, %b}" % (b", ".join(keys), keys[-1])))
    assert len(read_header(write(tmp_path / "model.safetensors", b"{%b}" % b", ".join(keys)))) == 40_000
    assert time.process_time() - began_s < 5, "0.3 where it was written; it was quadratic"


# -- shards ------------------------------------------------------------------------------------------------------------


def write_index(folder: Path, weight_map: object) -> None:
    (folder / INDEX_FILE).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def test_shards_in_order(tmp_path: Path) -> None:
    for name in ("b.safetensors", "a.safetensors"):
        write(tmp_path / name, {name: SOUND})
    write_index(tmp_path, {"b.safetensors": "b.safetensors", "a.safetensors": "a.safetensors"})
    assert [path.name for path in checkpoint_files(tmp_path)] == ["a.safetensors", "b.safetensors"]
    assert set(read_index(tmp_path)) == {"a.safetensors", "b.safetensors"}


def test_missing_shards_are_named(tmp_path: Path) -> None:
    write(tmp_path / "a.safetensors", {"x": SOUND})
    write_index(tmp_path, {"x": "a.safetensors", "y": "b.safetensors", "z": "c.safetensors"})
    with pytest.raises(CheckpointError, match=r"2 of 3 shards are missing .* b\.safetensors, c\.safetensors"):
        checkpoint_files(tmp_path)


@pytest.mark.parametrize("is_absolute", [True, False])
def test_a_shard_outside_the_folder(tmp_path: Path, is_absolute: bool) -> None:
    outside = write(tmp_path / "outside.safetensors", {"x": SOUND})
    folder = tmp_path / "model"
    folder.mkdir()
    write_index(folder, {"x": str(outside) if is_absolute else "../outside.safetensors"})
    with pytest.raises(CheckpointError, match="names a shard outside its folder"):
        checkpoint_files(folder)


def test_a_shard_that_is_a_link_is_followed(tmp_path: Path) -> None:
    """The hub's cache keeps blobs elsewhere and links them into the folder."""
    blob = write(tmp_path / "blob", {"x": SOUND})
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "a.safetensors").symlink_to(blob)
    write_index(folder, {"x": "a.safetensors"})
    assert set(read_index(folder)) == {"x"}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": []}', '{"weight_map": {"x": 5}}', "[" * 100_000])
def test_an_index_that_makes_no_sense(tmp_path: Path, text: str) -> None:
    (tmp_path / INDEX_FILE).write_text(text)
    with pytest.raises(CheckpointError, match=rf"{INDEX_FILE} cannot be read"):
        checkpoint_files(tmp_path)


def test_a_key_stored_in_two_shards(tmp_path: Path) -> None:
    for name in ("a.safetensors", "b.safetensors"):
        write(tmp_path / name, {"x": SOUND})
    write_index(tmp_path, {"x": "a.safetensors", "y": "b.safetensors"})
    with pytest.raises(CheckpointError, match=r"'x' is stored twice, in .*a\.safetensors and .*b\.safetensors"):
        read_index(tmp_path)


def test_no_tensors(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", {})
    with pytest.raises(CheckpointError, match="no tensors"):
        read_index(tmp_path)


def test_no_safetensors_file(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"holds no \.safetensors file"):
        checkpoint_files(tmp_path)
