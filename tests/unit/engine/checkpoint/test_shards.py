"""Which files are the model's: one rule, and everyone who asks gets the same answer."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.checkpoint.catalogue import describe_folder
from engine.checkpoint.fingerprint import fingerprint
from engine.checkpoint.index import read_index
from engine.checkpoint.shards import INDEX_FILE, choose_shards
from engine.checkpoint.stored_tensors import checkpoint_files
from engine.errors import MoeChatError
from tests.unit.engine.checkpoint.folders import sound_shapes, write_index, write_model, write_weights

SINGLE = "model.safetensors"
TWO = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def in_two(folder: Path) -> None:
    """The weights in two numbered files."""
    shapes = sound_shapes()
    for number, name in enumerate(TWO):
        write_weights(folder / name, {key: shapes[key] for key in sorted(shapes)[number::2]})


def chosen(folder: Path) -> list[str]:
    return [path.name for path in choose_shards(folder).paths]


@pytest.mark.parametrize("stray", [SINGLE, "other.safetensors", "consolidated.safetensors"])
def test_a_whole_index_wins_and_what_it_does_not_name_is_left_alone(tmp_path: Path, stray: str) -> None:
    in_two(write_model(tmp_path, stray))
    write_index(tmp_path, TWO)
    assert chosen(tmp_path) == [*TWO]
    (notice,) = choose_shards(tmp_path).notices
    assert stray in notice
    assert set(read_index(tmp_path)) == set(sound_shapes())


@pytest.mark.parametrize("left", [(), TWO[:1]])
def test_a_whole_single_file_wins_over_an_index_that_lacks_shards(tmp_path: Path, left: tuple[str, ...]) -> None:
    write_model(tmp_path, SINGLE, *left)
    write_index(tmp_path, TWO)
    assert chosen(tmp_path) == [SINGLE]
    assert f"{INDEX_FILE} is not used: {2 - len(left)} of the 2 files" in choose_shards(tmp_path).notices[0]


def test_a_whole_single_file_wins_over_an_index_that_makes_no_sense(tmp_path: Path) -> None:
    write_model(tmp_path, SINGLE)
    (tmp_path / INDEX_FILE).write_text("[]")
    assert chosen(tmp_path) == [SINGLE]
    assert "it is a list" in choose_shards(tmp_path).notices[0]


def test_a_single_file_that_was_cut_off_does_not_win(tmp_path: Path) -> None:
    write_model(tmp_path)
    write_weights(tmp_path / SINGLE, sound_shapes(), num_cut_bytes=1)
    write_index(tmp_path, TWO)
    assert choose_shards(tmp_path).missing == TWO


def test_a_numbered_set_needs_no_index_and_must_be_complete(tmp_path: Path) -> None:
    in_two(write_model(tmp_path))
    assert chosen(tmp_path) == [*TWO]
    (tmp_path / TWO[0]).unlink()
    assert choose_shards(tmp_path).missing == TWO[:1]


def test_one_file_of_another_name_is_the_model(tmp_path: Path) -> None:
    write_model(tmp_path, "weights.safetensors", "consolidated.safetensors", "adapter_model.safetensors")
    assert chosen(tmp_path) == ["weights.safetensors"]
    assert "adapter_model.safetensors, consolidated.safetensors" in choose_shards(tmp_path).notices[0]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("a.safetensors", "b.safetensors"), "2 safetensors files .* no model.safetensors.index.json says"),
        (("consolidated.safetensors",), "no weights in the layout of transformers, only consolidated.safetensors"),
        (("consolidated-00001-of-00001.safetensors",), "no weights in the layout of transformers"),
        (("a-00001-of-00001.safetensors", "b-00001-of-00001.safetensors"), "several sets of safetensors files"),
        (("a-00000-of-00000.safetensors",), "is no set of shards"),
    ],
)
def test_where_nothing_decides_it_is_an_error(tmp_path: Path, names: tuple[str, ...], message: str) -> None:
    write_model(tmp_path, *names)
    with pytest.raises(MoeChatError, match=message) as caught:
        choose_shards(tmp_path)
    assert caught.value.hint
    assert not describe_folder(tmp_path).is_supported


FOLDERS: dict[str, Callable[[Path], object]] = {
    "a single file": lambda folder: write_model(folder, SINGLE),
    "a single file, cut": lambda folder: write_weights(folder / SINGLE, sound_shapes(), 5),
    "a single file beside an index": lambda folder: write_index(write_model(folder, SINGLE), TWO),
    "an index": lambda folder: (in_two(folder), write_index(folder, TWO)),
    "an index and a stray file": lambda folder: ((in_two(write_model(folder, SINGLE)), write_index(folder, TWO))),
    "a missing shard": lambda folder: (in_two(folder), write_index(folder, (*TWO, "third.safetensors"))),
    "a damaged index": lambda folder: (in_two(folder), (folder / INDEX_FILE).write_text("{")),
    "an index of strange names": lambda folder: ((in_two(folder), write_index(folder, (*TWO, "../x.safetensors")))),
    "two files": lambda folder: write_model(folder, "a.safetensors", "b.safetensors"),
    "a tensor in two shards": lambda folder: write_index(write_model(folder, *TWO), TWO),
    "a FIFO": lambda folder: os.mkfifo(folder / SINGLE),
    "a folder": lambda folder: (folder / SINGLE).mkdir(),
    "a device": lambda folder: (folder / SINGLE).symlink_to("/dev/zero"),
    "a link to nothing": lambda folder: (folder / SINGLE).symlink_to("gone"),
    "a FIFO as index": lambda folder: (in_two(folder), os.mkfifo(folder / INDEX_FILE)),
    "a link to nothing as index": lambda folder: (in_two(folder), (folder / INDEX_FILE).symlink_to("gone")),
    "nothing": lambda folder: None,
}


@pytest.mark.parametrize("kind", FOLDERS)
def test_the_menu_the_index_and_the_fingerprint_agree(tmp_path: Path, kind: str) -> None:
    FOLDERS[kind](write_model(tmp_path))
    entry = describe_folder(tmp_path)
    if entry.is_supported:
        assert entry.total_bytes == sum(path.stat().st_size for path in checkpoint_files(tmp_path))
        assert read_index(tmp_path).keys() == sound_shapes().keys()
        assert fingerprint(tmp_path)
        return
    for use in (read_index, fingerprint):
        with pytest.raises(MoeChatError) as caught:
            use(tmp_path)
        assert str(tmp_path) in caught.value.message
        assert caught.value.hint
