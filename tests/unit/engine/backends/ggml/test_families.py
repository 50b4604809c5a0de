"""Families: every number and tensor that changes the result is used, or the model is refused by its name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.backends.ggml.attention_spec import GroupedAttention
from engine.backends.ggml.families import read_spec
from engine.backends.ggml.gguf_model import GgufFiles
from engine.backends.ggml.model_spec import SIGMOID, SOFTMAX
from engine.backends.ggml.safetensors_model import read_safetensors_model
from engine.errors import CheckpointError, UnsupportedModelError
from tests.architectures.tiny import save_checkpoint
from tests.gguf_files import write_gguf


def gguf_spec(path: Path, arch: str, **options: Any) -> Any:
    return read_spec(GgufFiles(write_gguf(path / "model.gguf", arch, "F16", **options)).stored)


def test_qwen3moe_from_gguf(tmp_path: Path) -> None:
    spec = gguf_spec(tmp_path, "qwen3moe", layers=3, experts=8, top_k=2)
    assert (spec.router.scoring, spec.moe_layers, spec.top_k) == (SOFTMAX, (0, 1, 2), 2)
    attention = [layer.attention for layer in spec.layers]
    assert all(isinstance(each, GroupedAttention) and each.query_norm is not None for each in attention)
    assert all(len(layer.experts) == 8 for layer in spec.layers)


def test_windows_and_stretched_rotary_embeddings_are_read(tmp_path: Path) -> None:
    extra = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0, "attention.sliding_window": 512}
    spec = gguf_spec(tmp_path, "qwen3moe", extra={f"qwen3moe.{key}": value for key, value in extra.items()})
    assert (spec.window_tok, {layer.attention.is_windowed for layer in spec.layers}) == (512, {True})
    assert set(spec.rope.divisors) == {4.0}


def test_glm4moe_from_gguf(tmp_path: Path) -> None:
    spec = gguf_spec(tmp_path, "glm4moe", layers=3, dense_layers=1)
    assert (spec.router.scoring, spec.moe_layers) == (SIGMOID, (1, 2))
    assert spec.layers[0].dense is not None
    assert spec.layers[1].correction_bias is not None


@pytest.mark.parametrize(
    "extra",
    [
        {"qwen3moe.rope.scaling.type": "longrope", "qwen3moe.rope.scaling.factor": 4.0},
        {"qwen3moe.rope.dimension_sections": [8, 8, 8, 8]},
        {"qwen3moe.final_logit_softcapping": 30.0},
        {"qwen3moe.something_new": 1},
    ],
)
def test_a_key_that_is_not_computed_is_refused_by_name(tmp_path: Path, extra: dict[str, object]) -> None:
    with pytest.raises(UnsupportedModelError) as error:
        gguf_spec(tmp_path, "qwen3moe", extra=extra)
    assert next(iter(extra)).removeprefix("qwen3moe.") in error.value.message


def test_blocks_that_predict_further_tokens_are_left_out(tmp_path: Path) -> None:
    spec = gguf_spec(tmp_path, "glm4moe", layers=3, mtp_layers=1)
    assert len(spec.layers) == 3
    assert not any(name.startswith("blk.3.") for name in spec.resident())


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"blk\.1\.attn_k\.weight"):
        gguf_spec(tmp_path, "qwen3moe", skip=lambda name: name == "blk.1.attn_k.weight")


def test_a_number_that_does_not_fit_the_tensors_is_told(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="shape"):
        gguf_spec(tmp_path, "qwen3moe", extra={"qwen3moe.attention.head_count_kv": 4})


@pytest.mark.parametrize("name", ["qwen3_moe", "glm4_moe"])
def test_a_folder_is_the_same_model(name: str, tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path / name, name, torch.bfloat16, num_positions=128)
    spec = read_spec(read_safetensors_model(folder))
    assert spec.context_tok == 128
    assert all(len(spec.layers[number].experts) == 8 for number in spec.moe_layers)


@pytest.mark.parametrize(
    ("name", "changes", "key"),
    [
        ("olmoe", {"clip_qkv": 8.0}, "clip_qkv"),
        ("dots1", {"n_group": 2, "topk_group": 1}, "expert_group_count"),
        ("qwen2_moe", {"mlp_only_layers": [1]}, "mlp_only_layers"),
        ("qwen3_moe", {"hidden_act": "relu"}, "hidden_act"),
        ("ernie4_5_moe", {"moe_layer_interval": 2}, "interleave_moe_layer_step"),
    ],
)
def test_what_a_folder_says_and_is_not_computed_is_refused_by_name(
    name: str, changes: dict[str, object], key: str, tmp_path: Path
) -> None:
    folder = save_checkpoint(tmp_path / name, name, torch.bfloat16)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(UnsupportedModelError, match=key):
        read_spec(read_safetensors_model(folder))


def test_a_key_that_is_left_out_has_the_librarys_value(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path / "qwen3_moe", "qwen3_moe", torch.bfloat16)
    config = json.loads((folder / "config.json").read_text())
    del config["norm_topk_prob"]
    (folder / "config.json").write_text(json.dumps(config))
    assert not read_spec(read_safetensors_model(folder)).router.normalises


def test_a_dense_llama_is_called_dense(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", "qwen3moe", "F16", extra={"general.architecture": "llama"})
    with pytest.raises(UnsupportedModelError, match="dense"):
        GgufFiles(path)


def test_another_family_is_refused(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path / "jamba", "jamba", torch.bfloat16, num_positions=128)
    with pytest.raises(UnsupportedModelError, match="jamba"):
        read_safetensors_model(folder)
