"""Checkpoints are untrusted input: whatever their headers claim, the answer is an error that names the file."""

from __future__ import annotations

import json
import shutil
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.checkpoint.index import TensorEntry, checkpoint_files, read_header, read_index
from engine.checkpoint.shards import INDEX_FILE
from engine.errors import CheckpointError, ModelNotFoundError, MoeChatError, UnsupportedModelError
from engine.process.session import Session
from tests.architectures.tiny import save_checkpoint
from tests.unit.engine.commands.tiny_bench import config_of
from tests.unit.engine.conftest import TinyFolder

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


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"x": SOUND | {"data_offsets": [0, 32], "shape": [2, 4]}}, "truncated: 'x'"),
        ({"x": SOUND | {"data_offsets": [1 << 70, (1 << 70) + 16]}}, "truncated: 'x'"),
        ({"x": SOUND, "y": SOUND | {"data_offsets": [8, 16], "shape": [2]}}, "overlap"),
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


# -- a whole load refused ----------------------------------------------------------------------------------------------


@pytest.fixture
def copied(tiny_folder: TinyFolder, tmp_path: Path) -> Path:
    """A sound checkpoint to be damaged."""
    return Path(shutil.copytree(tiny_folder("qwen3_moe"), tmp_path / "model"))


def refused(folder: Path, **options: Any) -> MoeChatError:
    """The error of a load; checks that it can be shown, and that nothing was left behind."""
    threads, files = set(threading.enumerate()), open_checkpoint_files(folder)
    with pytest.raises(MoeChatError) as caught:
        Session(config_of(folder, **options), lambda event: None, lambda snapshot: None, lambda: False)
    left = [thread for thread in set(threading.enumerate()) - threads if not is_librarys(thread)]
    assert not left
    assert open_checkpoint_files(folder) == files
    assert caught.value.hint
    assert "Traceback" not in caught.value.message
    return caught.value


def is_librarys(thread: threading.Thread) -> bool:
    return "ThreadPoolExecutor" in thread.name or "tqdm" in type(thread).__name__.lower()


def open_checkpoint_files(folder: Path) -> list[str]:
    return [file.path for file in psutil.Process().open_files() if file.path.startswith(str(folder))]


def change_config(folder: Path, **values: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def test_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert isinstance(refused(tmp_path / "file"), UnsupportedModelError)
    assert isinstance(refused(tmp_path / "nothing"), ModelNotFoundError)


def test_a_gguf_file(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    error = refused(tmp_path / "model.gguf")
    assert isinstance(error, UnsupportedModelError)
    assert "GGUF" in error.message


def test_no_config(copied: Path) -> None:
    (copied / "config.json").unlink()
    assert isinstance(refused(copied), ModelNotFoundError)


@pytest.mark.parametrize("text", ["", "[]", "nonsense", '{"model_type": ["qwen3_moe"]}', '"qwen3_moe"'])
def test_a_config_that_makes_no_sense(copied: Path, text: str) -> None:
    (copied / "config.json").write_text(text)
    error = refused(copied)
    assert isinstance(error, CheckpointError | UnsupportedModelError)
    assert str(copied) in error.message


@pytest.mark.parametrize(
    "values",
    [
        {"hidden_size": "many"},
        {"hidden_size": -64},
        {"num_attention_heads": 0},
        {"num_hidden_layers": None},
        {"num_experts": "eight"},
        {"hidden_act": "made_up"},
        {"dtype": "made_up"},
        {"rope_parameters": {"rope_type": "made_up"}},
    ],
    ids=str,
)
def test_a_config_with_impossible_values(copied: Path, values: dict[str, object]) -> None:
    change_config(copied, **values)
    assert isinstance(refused(copied), CheckpointError | UnsupportedModelError)


def test_an_architecture_nobody_knows(copied: Path) -> None:
    change_config(copied, model_type="made_up_moe", architectures=["MadeUpForCausalLM"])
    error = refused(copied)
    assert isinstance(error, UnsupportedModelError)
    assert "architecture" in error.message


def test_code_in_the_folder_is_never_run(copied: Path, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    (copied / "own.py").write_text(f"open({str(witness)!r}, 'w')\n")
    change_config(copied, model_type="own", auto_map={"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.Own"})
    assert isinstance(refused(copied), UnsupportedModelError)
    assert not witness.exists()


@pytest.mark.parametrize("method", ["fp8", "gptq", "made_up"])
def test_a_quantised_checkpoint(copied: Path, method: str) -> None:
    change_config(copied, quantization_config={"quant_method": method, "bits": 4})
    error = refused(copied)
    assert isinstance(error, UnsupportedModelError)
    assert method in error.message


@pytest.mark.parametrize("name", ["llama", "jetmoe"])
def test_no_experts_to_offload(tiny_folder: TinyFolder, name: str) -> None:
    error = refused(tiny_folder(name))
    assert isinstance(error, UnsupportedModelError)
    assert name in error.message


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_router_that_is_not_finite(copied: Path, value: float) -> None:
    change_weights(copied, lambda weights: weights["model.layers.1.mlp.gate.weight"][3].fill_(value))
    error = refused(copied)
    assert isinstance(error, CheckpointError)
    assert "layers.1.mlp.gate" in error.message


def test_a_router_bias_that_is_not_finite(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path / "model", "glm4_moe")
    key = "model.layers.1.mlp.gate.e_score_correction_bias"
    change_weights(folder, lambda weights: weights[key].fill_(float("nan")))
    error = refused(folder)
    assert isinstance(error, CheckpointError)
    assert "e_score_correction_bias" in error.message


@pytest.mark.parametrize("num_experts", [4, 16])
def test_another_number_of_experts_than_the_config_says(copied: Path, num_experts: int) -> None:
    change_config(copied, num_local_experts=num_experts)
    assert isinstance(refused(copied), CheckpointError)


@pytest.mark.parametrize("key", ["mlp.experts.5.up_proj.weight", "mlp.gate.weight", "self_attn.q_proj.weight"])
def test_a_missing_tensor(copied: Path, key: str) -> None:
    def drop(weights: dict[str, torch.Tensor]) -> None:
        del weights[f"model.layers.1.{key}"]

    change_weights(copied, drop)
    assert isinstance(refused(copied), CheckpointError)


@pytest.mark.parametrize("key", ["mlp.experts.5.up_proj.weight", "mlp.gate.weight", "self_attn.q_proj.weight"])
def test_a_tensor_of_another_shape(copied: Path, key: str) -> None:
    def shrink(weights: dict[str, torch.Tensor]) -> None:
        weights[f"model.layers.1.{key}"] = weights[f"model.layers.1.{key}"][:-1].clone()

    change_weights(copied, shrink)
    assert isinstance(refused(copied), CheckpointError)


def test_a_truncated_checkpoint(copied: Path) -> None:
    path = copied / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    error = refused(copied)
    assert isinstance(error, CheckpointError)
    assert f"{path} is truncated" in error.message


def test_a_key_in_two_shards_is_refused_at_load(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path / "model", "qwen3_moe", shard_bytes=100_000)
    index = json.loads((folder / INDEX_FILE).read_text())
    shards = sorted(set(index["weight_map"].values()))
    first, second = load_file(folder / shards[0]), load_file(folder / shards[1])
    twice = next(iter(first))
    save_file(second | {twice: first[twice]}, folder / shards[1], {"format": "pt"})
    error = refused(folder)
    assert isinstance(error, CheckpointError)
    assert "stored twice" in error.message


def test_a_damaged_tokenizer_is_refused_before_a_weight_is_read(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (copied / "tokenizer.json").write_text("{}")

    def read(*arguments: object) -> torch.Tensor:
        raise AssertionError("a weight was read")

    monkeypatch.setattr(TensorEntry, "read", read)
    error = refused(copied)
    assert isinstance(error, CheckpointError)
    assert "tokenizer" in error.message


def test_a_read_error_in_the_middle_of_loading(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(entry: TensorEntry, *arguments: object) -> torch.Tensor:
        raise CheckpointError(f"{entry.path}: the disk is gone.", "Fetch it again.")

    monkeypatch.setattr(TensorEntry, "read", read)
    assert "the disk is gone" in refused(copied).message
