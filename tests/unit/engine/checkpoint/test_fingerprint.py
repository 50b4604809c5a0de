"""A fingerprint is of a model's routers: the same for every file of the model in which they have the same values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from safetensors.numpy import save_file

from engine.checkpoint.fingerprint import Fingerprint, fingerprint
from engine.profiles.store import ProfileStore
from offload.errors import ProfileError
from offload.geometry import Geometry, LayerGeometry
from offload.replay.profile import DomainProfile, build_profile
from offload.replay.trace import RoutingTrace, concatenate
from tests.unit.engine.checkpoint.folders import CONFIG

LAYERS, EXPERTS, HIDDEN = 3, 8, 64
CONFIG_JSON = {**CONFIG, "num_hidden_layers": 2, "num_experts": EXPERTS, "hidden_size": HIDDEN}
Values = Mapping[str, np.ndarray]


def routers(seed: int = 0) -> dict[str, np.ndarray]:
    """Weights and a correction of every layer, the last of which drafts tokens: exact in bf16 and fp16."""
    rng = np.random.default_rng(seed)
    found = {}
    for layer in range(LAYERS):
        found[f"{layer} weight"] = (rng.integers(-127, 128, (EXPERTS, HIDDEN)) / 64).astype(np.float32)
        found[f"{layer} correction"] = (rng.integers(-127, 128, EXPERTS) / 64).astype(np.float32)
    return found


def folder(path: Path, values: Values, dtype: type = np.float32, config: Mapping[str, object] = CONFIG_JSON) -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    tensors = {"model.embed_tokens.weight": np.zeros((10, HIDDEN), dtype)}
    for layer in range(LAYERS):
        tensors[f"model.layers.{layer}.mlp.gate.weight"] = values[f"{layer} weight"].astype(dtype)
        tensors[f"model.layers.{layer}.mlp.gate.e_score_correction_bias"] = values[f"{layer} correction"]
        tensors[f"model.layers.{layer}.mlp.shared_expert_gate.weight"] = np.zeros((1, HIDDEN), dtype)
    save_file(tensors, path / "model.safetensors")
    return path


def gguf_file(path: Path, values: Values, kind: Kind, experts: Kind = Kind.Q4_0) -> Path:
    writer = gguf.GGUFWriter(path, "qwen3moe")
    writer.add_block_count(LAYERS)
    writer.add_uint32("qwen3moe.nextn_predict_layers", 1)
    for layer in range(LAYERS):
        stored = gguf.quants.quantize(values[f"{layer} weight"], kind)
        is_plain = kind in (Kind.F32, Kind.F16)
        writer.add_tensor(f"blk.{layer}.ffn_gate_inp.weight", stored, raw_dtype=None if is_plain else kind)
        writer.add_tensor(f"blk.{layer}.exp_probs_b.bias", values[f"{layer} correction"])
        matrix = gguf.quants.quantize(np.ones((EXPERTS, HIDDEN, HIDDEN), np.float32), experts)
        writer.add_tensor(f"blk.{layer}.ffn_up_exps.weight", matrix, raw_dtype=experts)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_the_same_routers_in_whatever_format(tmp_path: Path) -> None:
    values = routers()
    same = {
        fingerprint(folder(tmp_path / "f32", values)),
        fingerprint(folder(tmp_path / "f16", values, np.float16)),
        fingerprint(gguf_file(tmp_path / "f32.gguf", values, Kind.F32)),
        fingerprint(gguf_file(tmp_path / "bf16.gguf", values, Kind.BF16, Kind.Q8_0)),
        fingerprint(gguf_file(tmp_path / "f16.gguf", values, Kind.F16, Kind.F32)),
    }
    assert len(same) == 1
    drafting = {**values, "2 weight": np.zeros((EXPERTS, HIDDEN), np.float32)}
    assert fingerprint(folder(tmp_path / "drafting", drafting)) in same, "the main model's routers alone count"


def test_other_routers_are_another_model(tmp_path: Path) -> None:
    values = routers()
    corrected = {**values, "1 correction": np.zeros(EXPERTS, np.float32)}
    others = [
        fingerprint(gguf_file(tmp_path / "a.gguf", values, Kind.F32)),
        fingerprint(gguf_file(tmp_path / "b.gguf", routers(1), Kind.F32)),
        fingerprint(gguf_file(tmp_path / "c.gguf", corrected, Kind.F32)),
        fingerprint(gguf_file(tmp_path / "d.gguf", values, Kind.Q8_0)),
        fingerprint(folder(tmp_path / "fewer", values, config={**CONFIG_JSON, "num_hidden_layers": 1})),
    ]
    assert len(set(others)) == len(others)


def test_without_a_router_that_is_known_all_tensors_count(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG_JSON))
    save_file({"model.layers.0.block.chooser": np.ones((EXPERTS, HIDDEN))}, tmp_path / "model.safetensors")
    found = fingerprint(tmp_path)
    assert found == found.earlier


def profile_of(model: str, expert_bytes: int = 100) -> DomainProfile:
    return build_profile(trace_of(model, expert_bytes), created_s=0.0)


def trace_of(model: str, expert_bytes: int = 100, top_k: int = 2) -> RoutingTrace:
    geometry = Geometry((LayerGeometry(0, EXPERTS, top_k, expert_bytes),))
    ids = np.tile(np.arange(top_k, dtype=np.uint16), (4, 1, 1))
    unknown = np.full_like(ids, 0xFFFF)
    return RoutingTrace(model, "maths", geometry, ids, unknown, None, np.zeros(4, bool), np.zeros(1, np.int64))


def test_profiles_of_earlier_versions_are_read_and_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOE_CHAT_HOME", str(tmp_path))
    model = Fingerprint("a" * 32, "b" * 32)
    ProfileStore("b" * 32).save(profile_of("b" * 32))
    store = ProfileStore(model)
    found = store.load("maths")
    assert store.names() == ["maths"]
    assert found is not None
    assert found.model == "b" * 32
    store.save(profile_of(model))
    found = store.load("maths")
    assert found is not None
    assert found.model == "a" * 32, "the newer one counts"
    store.delete("maths")
    assert store.names() == []
    ProfileStore("b" * 32).save(profile_of("c" * 32))
    with pytest.raises(ProfileError, match="another model, whose routers are others") as caught:
        store.load("maths")
    assert "profile build" in caught.value.hint


def test_traces_of_several_files_of_a_model_are_one(tmp_path: Path) -> None:
    both = concatenate([trace_of("a", 100), trace_of("a", 300)])
    assert both.num_steps == 8
    with pytest.raises(Exception, match="different models"):
        concatenate([trace_of("a"), trace_of("a", top_k=3)])
