"""Loads that are refused: with an error that can be shown, and with nothing left behind."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.checkpoint.index import TensorEntry
from engine.checkpoint.shards import INDEX_FILE
from engine.errors import CheckpointError, ModelNotFoundError, MoeChatError, UnsupportedModelError
from engine.process.session import Session
from tests.architectures.tiny import save_checkpoint
from tests.unit.engine.commands.tiny_bench import config_of
from tests.unit.engine.conftest import TinyFolder


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
    error = refused(tmp_path / "model.gguf", backend="auto")
    assert isinstance(error, CheckpointError)
    assert "model.gguf is cut off" in error.message


@pytest.mark.parametrize(
    ("architecture", "message"),
    [("mixtral9", "no GGUF family runs the architecture 'mixtral9'"), ("llama", "dense model")],
)
def test_a_gguf_file_of_another_architecture(tmp_path: Path, architecture: str, message: str) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", architecture)
    if architecture != "llama":
        writer.add_expert_count(8)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    error = refused(tmp_path / "model.gguf", backend="auto")
    assert isinstance(error, UnsupportedModelError)
    assert message in error.message
    assert "qwen3moe" in error.hint


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
