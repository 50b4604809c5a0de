"""A safetensors checkpoint as a StoredModel: config.json's keys and the library's tensor names, in GGUF's words. Light:
reads headers alone.

Tensors are taken as they are stored. llama.cpp's converter reorders the rows of queries and keys in some families:
families ask `StoredModel.is_converted` and have rotary embeddings pair dimensions accordingly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from engine.backends.ggml.families import words_of_model_type
from engine.backends.ggml.families.checkpoint_rope import KEYS as ROPE_KEYS
from engine.backends.ggml.families.checkpoint_rope import rope_numbers
from engine.backends.ggml.families.checkpoint_words import CheckpointWords
from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.float8_checkpoint import DTYPE as FLOAT8_DTYPE
from engine.backends.ggml.float8_checkpoint import Float8Matrices
from engine.backends.ggml.model_spec import StoredWeight
from engine.backends.ggml.tensor_types import BF16, F16, F32, I8
from engine.checkpoint.config_file import read_config_file
from engine.checkpoint.header import read_header
from engine.checkpoint.stored_tensors import Placed, checkpoint_files
from engine.errors import CheckpointError, UnsupportedModelError

_TYPES: Final = {"F32": F32, "F16": F16, "BF16": BF16}
_BYTES: Final = ("U8",)
"""Parts of what a family makes."""
_HARMLESS: Final = re.compile(
    r"architectures|model_type|(torch_)?dtype|transformers_version|_name_or_path|initializer_range|use_cache|pad_token_id"
    r"|(bos|eos|decoder_start|sep|eod)_token_id|output_\w+|return_dict\w*|router_aux_loss_coef|num_nextn_predict_layers"
    r"|torchscript|tie_word_embeddings|attention_bias|attention_dropout|use_qk_norm|max_window_layers|id2label|label2id"
    r"|chunk_size\w+|is_encoder_decoder|problem_type|tokenizer_class|auto_map|quantization_config|add_cross_attention"
    r"|qkv_bias|router_jitter_noise|pretraining_tp|use_sliding_window"
)
"""Keys that change nothing in the result, or say what the tensors' own presence says."""
_LAYER: Final = re.compile(r"model\.layers\.(\d+)\.(.+)")
_ENDS: Final = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_MTP_HINT: Final = "Use --backend transformers."


def read_safetensors_model(folder: Path, tensors: Sequence[Placed] | None = None) -> StoredModel:
    """`tensors`: of the folder, where they were read. Raises UnsupportedModelError where the family or a stored type
    is not known here, CheckpointError."""
    config = read_config_file(folder)
    known = words_of_model_type(str(config["model_type"]))
    if known is None:
        raise UnsupportedModelError(
            f"{folder.name} is a {str(config['model_type'])[:60]}, which the ggml back end does not know.", _MTP_HINT
        )
    family, words = known
    if tensors is None:
        tensors = [Placed(path, tensor) for path in checkpoint_files(folder) for tensor in read_header(path)]
    packed, name_of = Float8Matrices(tensors, config), cache(words.tensor)
    weights = {
        weight.name: weight
        for placed in tensors
        if placed.tensor.key not in packed.used_keys
        for weight in _weights(placed, words, name_of, packed)
    }
    weights = {name: weight for name, weight in weights.items() if not _is_of_mtp(name, config)}
    if words.makes is not None:
        words.makes(weights)
    if config.get("tie_word_embeddings"):
        weights.pop("output.weight", None)
    return StoredModel(
        folder.name, family, _numbers(config, words), weights, lambda key: bool(_HARMLESS.fullmatch(key))
    )


def _is_of_mtp(name: str, config: Mapping[str, Any]) -> bool:
    """Layers behind the last one predict further tokens, and change nothing in the next one."""
    num_ahead = int(config.get("num_nextn_predict_layers") or 0)
    if name.startswith("mtp.") or not num_ahead:
        return name.startswith("mtp.")
    found = re.match(r"(?:blk|model\.layers)\.(\d+)\.", name)
    behind = 0 if found is None else int(found[1]) - int(config["num_hidden_layers"])
    return found is not None and 0 <= behind < num_ahead


def _numbers(config: Mapping[str, Any], words: CheckpointWords) -> dict[str, object]:
    own = {**words.defaults, **{key: value for key, value in config.items() if value is not None}}
    further = words.look(own)
    if own.get("use_sliding_window") is False:
        own.pop("sliding_window", None)
    kinds = own.get("layer_types")
    if isinstance(kinds, list) and all(kind in ("full_attention", "sliding_attention") for kind in kinds):
        del own["layer_types"]
        own["attention.sliding_window_pattern"] = [kind == "sliding_attention" for kind in kinds]
        own["attention.sliding_window"] = own.pop("sliding_window", 0)
    for key, plain in (("mlp_only_layers", []), ("decoder_sparse_step", 1)):
        if own.get(key) == plain:
            del own[key]
    return (
        {words.number(key): value for key, value in own.items() if key not in ROPE_KEYS}
        | rope_numbers(own)
        | dict(further)
    )


def _stored(placed: Placed, words: CheckpointWords, packed: Float8Matrices) -> StoredWeight:
    """The tensor under its own key."""
    path, tensor = placed
    if tensor.dtype == FLOAT8_DTYPE:
        return packed.weight(placed)
    if tensor.dtype not in _TYPES and (words.makes is None or tensor.dtype not in _BYTES):
        raise UnsupportedModelError(
            f"{path}: {tensor.key[:80]} is stored as {tensor.dtype}, which is not read yet.",
            "Use its bf16, fp16, fp32 or fp8 checkpoint, or a GGUF file.",
        )
    if not tensor.shape:
        raise CheckpointError(f"{path}: {tensor.key[:80]} holds a single value.", "Fetch the checkpoint again.")
    type_id = _TYPES.get(tensor.dtype, I8)
    return StoredWeight(tensor.key, type_id, tensor.shape[::-1], str(path), tensor.file_offset, tensor.num_bytes)


def _weights(
    placed: Placed, words: CheckpointWords, name_of: Callable[[str], str | None], packed: Float8Matrices
) -> Iterator[StoredWeight]:
    """The tensor in GGUF's words; where it holds gate and up, both, of every expert for itself. `name_of`: those of the
    words, remembered from layer to layer."""
    tensor, whole = placed.tensor, _stored(placed, words, packed)
    shape = whole.shape
    layer = _LAYER.fullmatch(tensor.key)
    if layer is None:
        if whole.made is not None and tensor.key in _ENDS:
            raise UnsupportedModelError(
                f"{placed.path}: {tensor.key} is stored as {tensor.dtype}, which is read of layers alone.",
                "Use its bf16 checkpoint, or a GGUF file.",
            )
        yield whole._replace(name=_ENDS.get(tensor.key, tensor.key))
        return
    prefix, name = f"blk.{layer[1]}.", layer[2]
    halves = words.halves(name)
    if halves is not None and whole.made is None and len(shape) in (2, 3) and shape[1] % 2 == 0:
        stack = [whole.matrix(number) for number in range(shape[2])] if len(shape) == 3 else [whole]
        for number, matrix in enumerate(stack):
            for half, target in zip(matrix.row_halves(), halves, strict=True):
                yield half._replace(name=prefix + target.format(number))
    else:
        own = name_of(name) or ""
        if own.endswith(".bias"):  # some are stored as a matrix of one row
            whole = whole._replace(shape=(shape[0],) if shape[1:] == (1,) else shape)
        yield whole._replace(name=prefix + own if own else tensor.key)
