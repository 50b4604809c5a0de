"""What `--config` gives a GGUF file that does not carry enough: tokenizer, chat template, context, stop ids, sampling.

The folder is the same model's, as its makers published it: what it says must agree with the file. Nothing of it is ever
executed. Light: the tokenizer is made in `given_tokenizer`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from engine.backends.ggml.families import family_of_model_type
from engine.checkpoint.config_file import NUM_EXPERTS, TOP_K, largest_number, read_config_file, text_part
from engine.checkpoint.gguf.header import GgufFile
from engine.checkpoint.tokenizer_files import has_vocabulary
from engine.errors import UnsupportedModelError
from offload.bounded_json import shown

_COMPARED: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("embedding_length", ("hidden_size",)),
    ("expert_count", NUM_EXPERTS),
    ("expert_used_count", TOP_K),
    ("attention.head_count", ("num_attention_heads",)),
    ("attention.head_count_kv", ("num_key_value_heads",)),
)
"""Keys of the file, without the architecture, and what config.json calls them."""
_FILLED: Final = {
    "context_length": "max_position_embeddings",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
"""Numbers that are taken from config.json where the file lacks them."""


@dataclass(frozen=True, slots=True)
class GivenConfig:
    """A folder that was named by `--config`, read and checked."""

    folder: Path
    config: Mapping[str, Any]

    @property
    def has_tokenizer(self) -> bool:
        """Whether the folder holds one: it is then used in place of the file's."""
        return has_vocabulary(self.folder)

    def numbers(self) -> dict[str, object]:
        """What the file may lack, under its own names."""
        text = text_part(self.config)
        rope = text.get("rope_parameters")
        values = {**(rope if isinstance(rope, dict) else {}), **text}
        return {name: values[key] for name, key in _FILLED.items() if values.get(key) is not None}

    def require_agreement(self, file: GgufFile) -> None:
        """Raises UnsupportedModelError, naming the first thing of which file and config say different things."""
        if (problem := next(self._differences(file), None)) is not None:
            raise self.disagreement(problem)

    def _differences(self, file: GgufFile) -> Iterator[str]:
        model_type = str(self.config["model_type"])
        if family_of_model_type(model_type) != file.architecture:
            yield f"it is a {shown(model_type)}, and the file a {shown(file.architecture)}"
        text, keys = text_part(self.config), file.metadata
        num_layers, num_blocks = text.get("num_hidden_layers"), _number(keys, f"{file.architecture}.block_count")
        num_drafting = _number(keys, f"{file.architecture}.nextn_predict_layers") or 0
        if num_blocks is not None and num_layers not in (None, num_blocks, num_blocks - num_drafting):
            yield f"num_hidden_layers is {num_layers}, and the file has {num_blocks} blocks"
        vocabulary_tok = num_rows(file)
        if vocabulary_tok is not None and text.get("vocab_size") not in (None, vocabulary_tok):
            yield f"vocab_size is {text['vocab_size']}, and the file has {vocabulary_tok} tokens"
        for name, own_names in _COMPARED:
            said, wanted = _number(keys, f"{file.architecture}.{name}"), largest_number(text, own_names)
            if None not in (said, wanted) and said != wanted:
                key = next(key for key in own_names if key in text)
                yield f"{key} is {wanted}, and the file's {file.architecture}.{name} is {said}"

    def disagreement(self, problem: str) -> UnsupportedModelError:
        """The error where the folder is of another model than the file."""
        return UnsupportedModelError(
            f"{self.folder} (--config) is of another model than the file: {problem}.",
            "Name the folder or the Hugging Face id of the model that the file was made from, or leave --config out.",
        )


def _number(keys: Mapping[str, object], key: str) -> int | None:
    value = keys.get(key)
    return value if type(value) is int else None


def read_given_config(folder: Path) -> GivenConfig:
    """Reads and checks config.json. Raises CheckpointError."""
    return GivenConfig(folder, read_config_file(folder))


def num_rows(file: GgufFile) -> int | None:
    """Tokens that the file has embeddings of; None: it does not say."""
    table = file.tensors.get("token_embd.weight")
    return table.shape[1] if table is not None and len(table.shape) == 2 else None
