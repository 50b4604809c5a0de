"""Values of config.json that nothing could use are refused, with file and key, before any library sees them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.checkpoint.catalogue import describe_folder
from engine.checkpoint.config_file import config_problem, read_config_file
from engine.errors import CheckpointError
from tests.unit.engine.checkpoint.folders import CONFIG, write_model


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("num_hidden_layers", value) for value in (10**5, 2**63, 0, -1, "3", [3], 3.0, True, {})),
        *(("num_labels", value) for value in (10**9, -1, "2")),
        ("id2label", {str(number): "x" for number in range(100_001)}),
        ("id2label", ["x"]),
        ("vocab_size", 10**9),
        ("vocab_size", [10]),
        ("hidden_size", 2**40),
        ("num_attention_heads", 0),
        ("num_key_value_heads", -2),
        ("head_dim", 10**7),
        ("num_experts", 10**6),
        ("num_experts", "eight"),
        ("num_experts_per_tok", -1),
        ("moe_intermediate_size", [4, -4]),
        ("max_position_embeddings", 2**40),
        ("max_position_embeddings", -1),
        ("some_new_size", 10**30),
        ("num_made_up_things", -(2**40)),
        ("rms_norm_eps", "small"),
        ("rms_norm_eps", float("inf")),
        ("rope_parameters", 3),
        ("layer_types", "full_attention"),
        ("model_type", ["qwen3_moe"]),
        ("model_type", "x" * 5000),
        ("tie_word_embeddings", "yes"),
        ("quantization_config", "gptq"),
        ("text_config", [1]),
        ("text_config", {"num_hidden_layers": 10**9}),
        ("vision_config", {"num_labels": 10**9}),
        ("auto_map", 3),
        ("eos_token_id", "2"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_an_impossible_value(tmp_path: Path, key: str, value: Any) -> None:
    path = write_model(tmp_path, "model.safetensors") / "config.json"
    path.write_text(json.dumps(CONFIG | {key: value}))
    with pytest.raises(CheckpointError) as caught:
        read_config_file(tmp_path)
    assert f"{path}: {key}" in caught.value.message
    assert len(caught.value.message) < len(str(path)) + 300
    assert caught.value.hint
    entry = describe_folder(tmp_path)
    assert entry.reason.startswith(f"config.json: {key}")
    assert not entry.is_supported


@pytest.mark.parametrize(
    "changes",
    [
        {},
        dict.fromkeys(("num_labels", "head_dim", "rope_scaling", "quantization_config", "eos_token_id")),
        {"num_experts": [4, 8], "num_experts_per_tok": [2, 2], "moe_intermediate_size": [4, 4]},
        {"time_step_limit": [0.0, float("inf")]},
        {"anything": {"at": ["all", -(10**40)]}, "seed": 10**30},
        {"eos_token_id": [1, 2], "pad_token_id": -1, "rope_theta": 1e6},
        {"num_experts": 0, "num_experts_per_tok": 0},
        {"sliding_window": None, "layer_types": ["full_attention"] * 2},
    ],
    ids=str,
)
def test_what_models_really_hold(changes: dict[str, Any]) -> None:
    assert config_problem(json.loads(json.dumps(CONFIG | changes))) == ""


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"num_experts_per_tok": 5}, "top_k of 5 experts for a token is more than the 4 experts"),
        ({"num_experts_per_tok": 0}, "top_k is 0"),
        ({"model_type": ""}, "does not name its model type"),
        ({f"key{number}": 0 for number in range(2000)}, "has 2007 keys, where at most 2000 are read"),
        ({"text_config": {"num_experts": 2, "num_experts_per_tok": 3}}, "text_config.top_k of 3 experts"),
    ],
    ids=range(5),
)
def test_values_that_contradict_each_other(changes: dict[str, Any], problem: str) -> None:
    assert problem in config_problem(CONFIG | changes)
