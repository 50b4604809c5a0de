"""What names and shapes of tensors say against config.json, without a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.checkpoint.catalogue import describe_folder
from engine.checkpoint.config_file import read_config_file
from engine.checkpoint.cross_check import check_against_config, contradiction
from engine.checkpoint.index import read_index
from engine.errors import CheckpointError
from tests.architectures.tiny import SUPPORTED
from tests.unit.engine.checkpoint.folders import CONFIG, sound_shapes, write_model, write_weights
from tests.unit.engine.conftest import TinyFolder

Shapes = dict[str, tuple[int, ...]]
EXPERT = "model.layers.1.mlp.experts.2"


def without(*parts: str) -> Shapes:
    return {key: shape for key, shape in sound_shapes().items() if not any(part in key for part in parts)}


def with_shape(key: str, *shape: int) -> Shapes:
    return sound_shapes() | {key: shape}


def all_experts(change: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Shapes:
    return {key: change(shape) if "experts" in key else shape for key, shape in sound_shapes().items()}


FUSED: Shapes = {
    **without("experts"),
    **{f"model.layers.{layer}.mlp.experts.gate_up_proj": (4, 6, 8) for layer in range(2)},
    **{f"model.layers.{layer}.mlp.experts.down_proj": (4, 4, 6) for layer in range(2)},
}


@pytest.mark.parametrize(
    ("shapes", "problem"),
    [
        (without("layers.1."), "num_hidden_layers is 2, and there is no tensor of layer 1"),
        (
            sound_shapes() | {k.replace("layers.1.", "layers.2."): s for k, s in sound_shapes().items()},
            "num_hidden_layers is 2, and there are tensors of layer 2",
        ),
        (without("layers.0.mlp.experts.3"), "of layer 0, 3 experts have 'gate_proj.weight', where 4 experts were"),
        (without(f"{EXPERT}.up_proj"), "of layer 1, 3 experts have 'up_proj.weight', where 4 experts were expected"),
        (sound_shapes() | {"model.layers.0.mlp.experts.4.up_proj.weight": (4, 6)}, "of layer 0, 5 experts have"),
        (all_experts(lambda shape: shape[::-1]), "which is transposed: hidden_size is 6"),
        (with_shape(f"{EXPERT}.up_proj.weight", 6, 4), "which is transposed: hidden_size is 6"),
        (all_experts(lambda shape: (1, *shape)), "where an expert's weight has two dimensions"),
        (with_shape(f"{EXPERT}.down_proj.weight", 24), "where an expert's weight has two dimensions"),
        (with_shape(f"{EXPERT}.down_proj.weight", 6, 5), "has shape [6, 5], and that of expert 0 [6, 4]"),
        (with_shape("model.embed_tokens.weight", 11, 6), "has shape [11, 6], where vocab_size is 10 and hidden_size 6"),
        (with_shape("model.embed_tokens.weight", 10, 7), "has shape [10, 7], where vocab_size is 10 and hidden_size 6"),
        (FUSED | {"model.layers.0.mlp.experts.gate_up_proj": (5, 6, 8)}, "where 4 experts were expected"),
        (FUSED | {"model.layers.0.mlp.experts.down_proj": (16, 6)}, "where 3 dimensions were expected"),
        (FUSED | {"model.layers.0.mlp.experts.down_proj_bias": (4, 1, 6)}, "where 2 dimensions were expected"),
    ],
)
def test_a_contradiction_is_found_in_the_headers(tmp_path: Path, shapes: Shapes, problem: str) -> None:
    assert problem in contradiction(CONFIG, shapes)
    with pytest.raises(CheckpointError, match=r"do not fit config\.json") as caught:
        check_against_config(CONFIG, shapes)
    assert caught.value.hint
    write_weights(write_model(tmp_path) / "model.safetensors", shapes)
    assert problem in describe_folder(tmp_path).reason


@pytest.mark.parametrize(
    ("changes", "shapes"),
    [
        ({}, sound_shapes()),
        ({}, FUSED),
        ({}, sound_shapes() | {"model.layers.2.eh_proj.weight": (6, 12), "model.layers.2.mlp.experts.0.x": (4, 6)}),
        ({}, sound_shapes() | {"vision.blocks.0.attn.weight": (3, 3), "vision.blocks.7.attn.weight": (3, 3)}),
        (
            {"num_hidden_layers": None, "num_experts": None, "vocab_size": None, "moe_intermediate_size": None},
            sound_shapes(),
        ),
        ({"num_experts": [4, 4], "moe_intermediate_size": [4, 4]}, sound_shapes()),
        ({"moe_intermediate_size": 99}, sound_shapes()),  # a key that many architectures do not read
        ({"moe_intermediate_size": 6, "moe_latent_size": 3}, all_experts(lambda shape: (6, 3))),
        ({"hidden_size": 4, "moe_intermediate_size": 4, "vocab_size": None}, all_experts(lambda shape: (4, 4))),
        ({}, {}),
    ],
    ids=range(10),
)
def test_what_says_nothing_against_it(changes: dict[str, Any], shapes: Shapes) -> None:
    assert contradiction(CONFIG | changes, shapes) == ""


@pytest.mark.parametrize("name", ["qwen3_moe", "gpt_oss", "nemotron_h"])
def test_saved_models_pass(tiny_folder: TinyFolder, name: str) -> None:
    folder = tiny_folder(name)
    shapes = {key: entry.shape for key, entry in read_index(folder).items()}
    assert contradiction(read_config_file(folder), shapes) == ""
    assert describe_folder(folder).reason == ""


@pytest.mark.long
@pytest.mark.parametrize("name", SUPPORTED)
def test_every_architecture_passes(tiny_folder: TinyFolder, name: str) -> None:
    test_saved_models_pass(tiny_folder, name)
