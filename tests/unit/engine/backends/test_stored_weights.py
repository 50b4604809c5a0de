"""The private parts of transformers that loading stands on, and what is read and what is left on disk."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import Concatenate, WeightConverter, WeightRenaming, rename_source_key
from transformers.modeling_utils import _get_dtype
from transformers.models.auto.auto_factory import _get_model_class

from engine.backends.offloaded_model import OffloadedModel
from engine.backends.transformers.stored_weights import StoredPart, WithheldParameter
from engine.checkpoint.index import TensorEntry
from tests.architectures.tiny import NUM_EXPERTS, save_checkpoint, save_tokenizer
from tests.unit.engine.commands.tiny_bench import config_of
from tests.unit.engine.conftest import TinyFolder

PRIVATE = "transformers changed a private function that engine/backends/transformers relies on: read it again"


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (
            PreTrainedModel._load_pretrained_model,
            ["model", "state_dict", "checkpoint_files", "load_config", "expected_keys"],
        ),
        (PreTrainedModel._finalize_model_loading, ["model", "load_config", "loading_info"]),
        (PreTrainedModel._get_dtype_plan, ["self", "dtype"]),
        (PreTrainedModel.get_init_context, ["dtype", "is_quantized", "_is_ds_init_called", "allow_all_kernels"]),
        (get_model_conversion_mapping, ["model", "key_mapping", "hf_quantizer", "add_legacy"]),
        (_get_model_class, ["config", "model_mapping"]),
        (
            _get_dtype,
            ["dtype", "checkpoint_files", "config", "sharded_metadata", "state_dict", "weights_only", "hf_quantizer"],
        ),
        (
            rename_source_key,
            ["source_key", "weight_renamings", "weight_converters", "base_model_prefix", "meta_state_dict", "reverse"],
        ),
        (WeightConverter.add_tensor, ["self", "target_key", "source_key", "source_pattern", "future"]),
        (WeightConverter.convert, ["self", "layer_name", "model", "config", "hf_quantizer", "loading_info"]),
    ],
    ids=lambda value: getattr(value, "__qualname__", ""),
)
def test_canary_of_signatures(function: Callable[..., object], parameters: list[str]) -> None:
    assert list(inspect.signature(function).parameters) == parameters, PRIVATE


def test_canary_of_kinds() -> None:
    assert isinstance(PreTrainedModel.__dict__["_load_pretrained_model"], staticmethod), PRIVATE
    assert hasattr(WeightConverter(["a", "b"], "c", operations=[Concatenate(dim=0)]), "source_patterns"), PRIVATE
    assert not issubclass(WeightRenaming, WeightConverter), PRIVATE
    assert not issubclass(WeightConverter, WeightRenaming), PRIVATE


@pytest.mark.parametrize("name", ["qwen3_moe", "deepseek_v3", "gpt_oss", "phimoe", "gemma4_text"])
def test_a_loaded_model_is_the_one_from_pretrained_makes(tiny_folder: TinyFolder, name: str) -> None:
    """Every module, parameter, buffer and setting, but for the routed experts."""
    folder = tiny_folder(name, torch.bfloat16)
    library = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", experts_implementation="eager").eval()
    engine = open_model(folder)
    try:
        ours = engine.loaded.model
        assert type(ours) is type(library)
        assert ours.dtype == library.dtype
        theirs = {key: value for key, value in library.state_dict().items() if ".experts." not in key}
        mine = {key: value for key, value in ours.state_dict().items() if ".experts." not in key}
        assert {key: value.dtype for key, value in mine.items()} == {key: value.dtype for key, value in theirs.items()}
        assert all(torch.equal(mine[key], value) for key, value in theirs.items())
        buffers = dict(library.named_buffers())
        assert buffers.keys() == dict(ours.named_buffers()).keys()
        assert all(torch.equal(value, buffers[key]) for key, value in ours.named_buffers())
        assert not any(module.training for module in ours.modules())
        assert ours.config._attn_implementation == library.config._attn_implementation
    finally:
        engine.close()


# -- what is read, and what is not -------------------------------------------------------------------------------------


def open_model(folder: Path) -> OffloadedModel:
    return OffloadedModel(config_of(folder), folder, lambda progress: None, lambda: False)


def expected_parameters(folder: Path) -> dict[str, torch.Tensor]:
    """Every parameter of the unmodified model."""
    return dict(AutoModelForCausalLM.from_pretrained(folder, dtype="auto").named_parameters())


def assert_serves_the_librarys_bytes(folder: Path, num_direct_layers: int) -> None:
    """Every expert, read into a slot, is the library's parameter bit for bit."""
    engine, expected = open_model(folder), expected_parameters(folder)
    try:
        assert engine.loaded.store.num_direct_layers == num_direct_layers
        for layer, withheld in enumerate(engine.loaded.modules):
            slot = torch.full((engine.loaded.formats[layer].slot_bytes,), 0xAB, dtype=torch.uint8)
            for expert in range(NUM_EXPERTS):
                engine.loaded.store.read_into(layer, expert, memoryview(slot.numpy()))
                for part in engine.loaded.formats[layer].parameters:
                    held = slot[part.slot_offset : part.slot_offset + part.num_bytes].view(part.dtype).view(part.shape)
                    assert torch.equal(held, expected[f"{withheld.name}.{part.name}"][expert]), (layer, expert, part)
    finally:
        engine.close()


def test_no_routed_expert_is_read_while_loading(tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[str] = []
    read = TensorEntry.read

    def noted(entry: TensorEntry, *arguments: int) -> torch.Tensor:
        keys.append(entry.key)
        return read(entry, *arguments)

    monkeypatch.setattr(TensorEntry, "read", noted)
    engine = open_model(tiny_folder("glm4_moe"))
    try:
        assert not [key for key in keys if ".mlp.experts." in key]
        assert len(keys) == len(set(keys))
        assert any("shared_experts" in key for key in keys)
        for withheld in engine.loaded.modules:
            assert all(withheld.module._parameters[name] is None for name in withheld.parameters)
    finally:
        engine.close()


@pytest.mark.parametrize("name", ["qwen3_moe", "gpt_oss", "granitemoe", "mixtral", "nemotron_h", "jamba"])
def test_experts_are_the_librarys_bytes(tiny_folder: TinyFolder, name: str) -> None:
    engine = open_model(tiny_folder(name))
    num_direct_layers = len(engine.layers)
    engine.close()
    assert_serves_the_librarys_bytes(tiny_folder(name), num_direct_layers)


def test_many_shards_hold_the_same_bytes_as_one(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path / "model", "qwen3_moe", shard_bytes=60_000)
    assert len(list(folder.glob("*.safetensors"))) > 10
    assert_serves_the_librarys_bytes(folder, 3)
    whole, split = expected_parameters(tiny_folder("qwen3_moe")), expected_parameters(folder)
    assert all(torch.equal(whole[key], split[key]) for key in whole)


def test_a_fused_layout_holds_the_same_bytes_as_one_tensor_an_expert(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    separate = tiny_folder("qwen3_moe")
    folder = tmp_path / "fused"
    folder.mkdir()
    (folder / "config.json").write_bytes((separate / "config.json").read_bytes())
    save_tokenizer(folder)
    weights = {key: value.detach().clone() for key, value in expected_parameters(separate).items()}
    assert "model.layers.0.mlp.experts.gate_up_proj" in weights
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    assert_serves_the_librarys_bytes(folder, 3)
    one, other = open_model(separate), open_model(folder)
    try:
        ids, logits = one.greedy_ids([3, 4, 5], 8)
        other_ids, other_logits = other.greedy_ids([3, 4, 5], 8)
        assert ids == other_ids
        assert torch.equal(logits, other_logits)
    finally:
        one.close()
        other.close()


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        (torch.float32, torch.bfloat16),
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float16),
        (torch.float16, torch.bfloat16),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["qwen3_moe", "gpt_oss"])
def test_stored_in_another_dtype_than_the_config_asks_for(
    tmp_path: Path, name: str, stored: torch.dtype, wanted: torch.dtype
) -> None:
    folder = save_checkpoint(tmp_path / "model", name, stored)
    config = AutoConfig.from_pretrained(folder)
    config.dtype = wanted
    config.save_pretrained(folder)
    engine = open_model(folder)
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", experts_implementation="grouped_mm").eval()
    try:
        assert engine.loaded.model.dtype == plain.dtype == wanted
        assert engine.loaded.store.num_direct_layers == (len(engine.layers) if stored == wanted else 0)
        ids, logits = engine.greedy_ids([5, 9, 77, 3], 6)
        with torch.inference_mode():
            assert torch.equal(plain(torch.tensor([[5, 9, 77, 3]]), logits_to_keep=1).logits[0, -1], logits)
        assert len(ids) == 6
    finally:
        engine.close()
    assert_serves_the_librarys_bytes(folder, 3 if stored == wanted else 0)


def test_one_experts_layer_in_another_dtype(tmp_path: Path) -> None:
    """Only what has to be converted goes the slow way."""
    folder = save_checkpoint(tmp_path / "model", "qwen3_moe")
    weights = load_file(folder / "model.safetensors")
    for key in [key for key in weights if "layers.1.mlp.experts" in key]:
        weights[key] = weights[key].bfloat16()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    assert_serves_the_librarys_bytes(folder, 2)


def test_a_part_knows_how_much_it_holds() -> None:
    entry = TensorEntry("x", "file", 0, 4 * 6, torch.float32, (2, 3))
    assert StoredPart(entry, None, None).num_elements == 6
    assert StoredPart(entry, None, 1).num_elements == 3


def test_without_a_converter_an_expert_is_its_row() -> None:
    parameter = WithheldParameter("x", (3,), torch.float32, 2)
    entry = TensorEntry("x", "file", 0, 24, torch.float32, (2, 3))
    row = torch.tensor([[1.0, 2.0, 3.0]])
    assert torch.equal(parameter.convert([row], [StoredPart(entry, None, 1)], torch.nn.Module()), row[0])
