"""What is said of the models on a machine, without loading any."""

from __future__ import annotations

import json
import os
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from engine.checkpoint.catalogue import describe_folder, find_models, hub_cache

CONFIG = {"model_type": "qwen3_moe", "num_hidden_layers": 3, "num_experts": 8, "num_experts_per_tok": 2}
VALUE_BYTES = {"BF16": 2, "F8_E4M3": 1, "F4": 1}


def shard(path: Path, dtype: str = "BF16", num_layers: int = 3, num_experts: int = 8, is_cut: bool = False) -> None:
    """A safetensors file of the experts' weights, one [2, 2] for each."""
    num_bytes, header = 4 * VALUE_BYTES[dtype], {}
    for number in range(num_layers * num_experts):
        layer, expert = divmod(number, num_experts)
        offsets = [number * num_bytes, (number + 1) * num_bytes]
        key = f"model.layers.{layer}.mlp.experts.{expert}.up_proj.weight"
        header[key] = {"dtype": dtype, "shape": [2, 2], "data_offsets": offsets}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(len(header) * num_bytes - is_cut))


def model(folder: Path, **changes: Any) -> Path:
    """A folder that looks like a checkpoint; `changes` go into its config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {key: value for key, value in (CONFIG | changes).items() if value != "absent"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    shard(folder / "model.safetensors")
    return folder


def index(folder: Path, *names: str) -> None:
    weight_map = {f"t{number}": name for number, name in enumerate(names)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


@pytest.fixture(autouse=True)
def nothing_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("MOE_CHAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_what_is_said_of_a_whole_checkpoint(tmp_path: Path) -> None:
    entry = describe_folder(model(tmp_path / "mine"))
    assert (entry.name, entry.location) == ("mine", str(tmp_path / "mine"))
    assert (entry.is_supported, entry.reason) == (True, "")
    assert (entry.architecture, entry.num_layers, entry.num_experts, entry.top_k) == ("qwen3_moe", 3, 8, 2)
    assert entry.total_bytes == (tmp_path / "mine" / "model.safetensors").stat().st_size


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_type": "llama", "num_experts": "absent"}, "not a Mixture-of-Experts model"),
        ({"num_experts": 0}, "not a Mixture-of-Experts model"),
        ({"num_experts": None}, "not a Mixture-of-Experts model"),
        ({"model_type": "gemma4_text", "num_experts": "absent", "enable_moe_block": False}, "not a Mixture-of-Experts"),
        ({"model_type": "jetmoe"}, "jetmoe: its experts have no interface"),
        ({"model_type": "own_moe"}, "the architecture own_moe is not known"),
        ({"model_type": "absent"}, "does not name its model type"),
        ({"quantization_config": {"quant_method": "gptq"}}, r"quantised weights \(gptq\) cannot be read"),
        ({"quantization_config": {}}, "^$"),
        ({"model_type": "mixtral", "num_experts": "absent"}, "^$"),
    ],
)
def test_what_a_config_has_against_it(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    entry = describe_folder(model(tmp_path, **changes))
    assert re.search(reason, entry.reason)
    assert entry.is_supported == (not entry.reason)


def test_numbers_of_a_model_within_a_model(tmp_path: Path) -> None:
    inner = {"num_experts": [4, 8], "moe_topk": [2, 2], "num_hidden_layers": 5}
    config = {"num_experts": "absent", "num_experts_per_tok": "absent", "num_hidden_layers": "absent"}
    entry = describe_folder(model(tmp_path, text_config=inner, **config))
    assert (entry.num_layers, entry.num_experts, entry.top_k) == (5, 8, 2)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000])
def test_a_config_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    (model(tmp_path) / "config.json").write_text(text)
    entry = describe_folder(tmp_path)
    assert not entry.is_supported
    assert entry.reason.startswith("config.json cannot be read: ")


def test_missing_shards_are_counted(tmp_path: Path) -> None:
    folder = model(tmp_path)
    (folder / "model.safetensors").unlink()
    index(folder, *(f"{number}.safetensors" for number in range(8)))
    for number in range(5):
        shard(folder / f"{number}.safetensors")
    assert describe_folder(folder).reason == "incomplete: 3 of 8 shards are missing"


def test_a_shard_that_was_cut_off(tmp_path: Path) -> None:
    shard(model(tmp_path) / "model.safetensors", is_cut=True)
    assert describe_folder(tmp_path).reason == "incomplete: model.safetensors ends 1 bytes too early"


def test_experts_in_a_low_bit_format(tmp_path: Path) -> None:
    shard(model(tmp_path) / "model.safetensors", dtype="F8_E4M3")
    assert describe_folder(tmp_path).reason == "quantised weights (F8_E4M3) cannot be read"


@pytest.mark.parametrize(
    ("instead", "reason"),
    [
        ("pytorch_model.bin", "no safetensors: its weights are pickles, which are never loaded"),
        ("notes.txt", "no safetensors"),
    ],
)
def test_without_safetensors(tmp_path: Path, instead: str, reason: str) -> None:
    (model(tmp_path) / "model.safetensors").unlink()
    (tmp_path / instead).write_bytes(b"")
    assert describe_folder(tmp_path).reason == reason


def test_damage_is_named(tmp_path: Path) -> None:
    (model(tmp_path) / "model.safetensors").write_bytes(b"12345678")
    assert describe_folder(tmp_path).reason.startswith("damaged: ")
    (tmp_path / "model.safetensors.index.json").write_text("[]")
    assert "index.json cannot be read" in describe_folder(tmp_path).reason


def test_without_a_tokenizer(tmp_path: Path) -> None:
    (model(tmp_path) / "tokenizer.json").unlink()
    assert describe_folder(tmp_path).reason == "incomplete: there is no tokenizer"


def test_what_is_no_folder_at_all(tmp_path: Path) -> None:
    assert describe_folder(tmp_path / "gone").reason == "no such folder"
    assert describe_folder(tmp_path).reason == "not a model folder: there is no config.json"


# -- the search


def cached(cache: Path, repository: str, commit: str, is_main: bool = True) -> Path:
    root = cache / repository
    if is_main:
        (root / "refs").mkdir(parents=True)
        (root / "refs" / "main").write_text(commit)
    return model(root / "snapshots" / commit)


def test_the_demo_comes_first_and_every_model_once(tmp_path: Path) -> None:
    one, two = model(tmp_path / "models" / "one"), model(tmp_path / "two")
    entries = find_models([tmp_path / "models", two, one, tmp_path / "gone"])
    assert [entry.name for entry in entries] == ["demo", "one", "two", "gone"]
    assert entries[0].is_supported
    assert entries[3].reason == "no such folder"


def test_the_hub_cache_is_listed_by_hub_id(tmp_path: Path) -> None:
    cached(tmp_path / "hub", "models--owner--some--model", "abc")
    cached(tmp_path / "hub", "datasets--owner--data", "abc")
    (tmp_path / "hub" / "models--owner--empty").mkdir()
    (_, entry) = find_models([])
    assert (entry.name, entry.location, entry.is_supported) == ("owner/some--model", "owner/some--model", True)


def test_a_snapshot_that_no_branch_names_is_listed_by_its_folder(tmp_path: Path) -> None:
    old = cached(tmp_path / "hub", "models--owner--model", "old", is_main=False)
    new = cached(tmp_path / "hub", "models--owner--model", "new", is_main=False)
    os.utime(old, (1, 1))
    assert [entry.location for entry in find_models([])] == ["demo", str(new)]


def test_where_the_hub_keeps_its_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    assert hub_cache() == Path("/home/me/.cache/huggingface/hub")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert hub_cache() == Path("/caches/huggingface/hub")
    monkeypatch.setenv("HF_HOME", "~/hf")
    assert hub_cache() == Path("/home/me/hf/hub")
    monkeypatch.setenv("HF_HUB_CACHE", "/elsewhere")
    assert hub_cache() == Path("/elsewhere")
