"""`--config`: what a GGUF file does not carry comes from the folder of its model, which must be of the same model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.backends.choice import open_backend
from engine.backends.ggml.gguf_model import GgufFiles
from engine.backends.ggml.given_config import read_given_config
from engine.checkpoint.model_entry import ModelEntry
from engine.commands.model_menu import describe_model
from engine.config import EngineConfig
from engine.errors import CheckpointError, ModelNotFoundError, UnsupportedModelError
from engine.sampling.defaults import ModelDefaults
from tests.gguf_files import write_gguf

SIZES: dict[str, Any] = {"layers": 2, "hidden": 64, "experts": 4, "expert_ff": 32, "heads": 2, "head_dim": 32}
LACKS = {"tokenizer.ggml.tokens": None, "qwen3moe.context_length": None, "tokenizer.ggml.eos_token_id": None}
CONFIG: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rope_theta": 1e6,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> GgufFiles:
    return GgufFiles(write_gguf(tmp_path_factory.mktemp("whole") / "whole.gguf", quant="F16", **SIZES))


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """The same model without tokenizer and context."""
    return write_gguf(tmp_path / "bare.gguf", quant="F16", extra=LACKS, template=None, **SIZES)


@pytest.fixture
def folder(tmp_path: Path, whole: GgufFiles) -> Path:
    """What its makers published beside the weights."""
    path = tmp_path / "published"
    path.mkdir()
    tokenizer = whole.load_tokenizer()
    tokenizer.backend_tokenizer.save(str(path / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "chat_template": "{{ 1 }}"}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    write_config(path)
    return path


def write_config(folder: Path, **changed: Any) -> None:
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changed}))


def test_a_file_without_tokenizer_says_what_to_do(bare: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="carries no tokenizer") as caught:
        GgufFiles(bare)
    assert "--config" in caught.value.hint


def test_what_the_file_lacks_comes_from_the_folder(bare: Path, folder: Path, whole: GgufFiles) -> None:
    (folder / "generation_config.json").write_text('{"do_sample": true, "temperature": 0.5, "eos_token_id": 7}')
    config = EngineConfig(str(bare), backend="auto", config_source=str(folder))
    backend, _ = open_backend(config, bare, lambda: False)
    assert backend.plan.model_context_tok == 512
    files = GgufFiles(bare, read_given_config(folder))
    ours, theirs = files.load_tokenizer(), whole.load_tokenizer()
    for text in ("The sea is wide.", "<|im_start|>user\nWhere?<|im_end|>"):
        assert ours.encode(text) == theirs.encode(text)
    assert ours.get_chat_template() == "{{ 1 }}"
    assert ours.eos_token_id == theirs.eos_token_id
    assert files.read_defaults() == ModelDefaults(do_sample=True, temperature=0.5, end_tokens=frozenset({7}))


def test_a_folder_may_hold_less(tmp_path: Path, folder: Path, whole: GgufFiles) -> None:
    """Its template is used, and the file's own tokenizer."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    (folder / "chat_template.jinja").write_text("{{ 2 }}")
    files = GgufFiles(whole.path, read_given_config(folder))
    assert files.load_tokenizer().get_chat_template() == "{{ 2 }}"
    whole.load_tokenizer()
    assert files.end_token_sources[0] == whole.end_token_sources[0]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model_type": "glm4_moe"}, "'glm4_moe', and the file a 'qwen3moe'"),
        ({"num_hidden_layers": 3}, "num_hidden_layers is 3, and the file has 2 blocks"),
        ({"vocab_size": 5}, "vocab_size is 5, and the file has "),
        ({"hidden_size": 32}, "hidden_size is 32, and the file's qwen3moe.embedding_length is 64"),
        ({"num_experts": 8}, "num_experts is 8, and the file's qwen3moe.expert_count is 4"),
    ],
)
def test_a_config_of_another_model_is_refused_by_name(
    bare: Path, folder: Path, changed: dict[str, Any], said: str
) -> None:
    write_config(folder, **changed)
    with pytest.raises(UnsupportedModelError, match="is of another model than the file") as caught:
        GgufFiles(bare, read_given_config(folder))
    assert said in caught.value.message
    assert "--config" in caught.value.hint


def test_a_tokenizer_with_more_tokens_than_the_file(bare: Path, folder: Path) -> None:
    listed = [f"<extra {number}>" for number in range(3)]
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "additional_special_tokens": listed}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(UnsupportedModelError, match="its tokenizer has 362 tokens, and the file 359"):
        GgufFiles(bare, read_given_config(folder)).load_tokenizer()


def test_what_is_no_configuration(bare: Path, folder: Path, tmp_path: Path) -> None:
    for name, said in ((str(bare), "is no folder"), (str(tmp_path), "holds no config.json")):
        config = EngineConfig(str(bare), backend="auto", config_source=name)
        with pytest.raises(ModelNotFoundError, match=said):
            open_backend(config, bare, lambda: False)
    write_config(folder, num_hidden_layers="many")
    with pytest.raises(CheckpointError, match="num_hidden_layers"):
        open_backend(EngineConfig(str(bare), backend="auto", config_source=str(folder)), bare, lambda: False)


def test_the_menu_counts_with_it(bare: Path, folder: Path) -> None:
    def entry(source: str | None) -> ModelEntry:
        return describe_model(bare, EngineConfig(str(bare), config_source=source))

    assert not entry(None).is_supported
    assert "--config" in entry(None).reason
    assert entry(str(folder)).is_supported
    assert entry(str(folder)).costs is not None
    write_config(folder, hidden_size=32)
    assert "is of another model than the file: hidden_size is 32" in entry(str(folder)).reason
