"""A safetensors checkpoint as a StoredModel: config.json's keys and the library's tensor names, in GGUF's words; and
what its folder holds beside the weights."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from engine.backends.ggml.families import family_of_model_type
from engine.backends.ggml.families.stored_model import StoredModel
from engine.backends.ggml.model_spec import StoredWeight
from engine.backends.ggml.number_formats import formats_in_words
from engine.backends.ggml.tensor_types import BF16, F16, F32
from engine.backends.tokenizers.folder_tokenizer import fast_tokenizer_of
from engine.checkpoint.config_file import NUM_EXPERTS, TOP_K, read_config_file
from engine.checkpoint.header import StoredTensor, read_header
from engine.checkpoint.shards import choose_shards
from engine.checkpoint.stored_tensors import checkpoint_files, tensors_not_finite
from engine.errors import CheckpointError, UnsupportedModelError
from engine.sampling.defaults import ModelDefaults, read_model_defaults

_TYPES: Final = {"F32": F32, "F16": F16, "BF16": BF16}
_NUMBERS: Final = {
    "num_hidden_layers": "block_count",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "vocab_size": "vocab_size",
    **dict.fromkeys(NUM_EXPERTS, "expert_count"),
    **dict.fromkeys(TOP_K, "expert_used_count"),
    "moe_intermediate_size": "expert_feed_forward_length",
    "norm_topk_prob": "expert_weights_norm",
    "routed_scaling_factor": "expert_weights_scale",
    "n_shared_experts": "expert_shared_count",
    "n_group": "expert_group_count",
    "topk_group": "expert_group_used_count",
    "first_k_dense_replace": "leading_dense_block_count",
}
"""Keys of config.json that have a counterpart. Others are in `_HARMLESS`, or looked at below, or refused."""
_HARMLESS: Final = re.compile(
    r"architectures|model_type|(torch_)?dtype|transformers_version|_name_or_path|initializer_range|use_cache|pad_token_id"
    r"|(bos|eos|decoder_start)_token_id|output_\w+|return_dict\w*|router_aux_loss_coef|num_nextn_predict_layers|torchscript"
    r"|tie_word_embeddings|attention_bias|attention_dropout|use_qk_norm|max_window_layers|id2label|label2id|chunk_size\w+"
    r"|is_encoder_decoder|problem_type|tokenizer_class|auto_map|quantization_config|layer_types|add_cross_attention"
)
"""Keys that change nothing in the result, or say what the tensors' own presence says."""
_LAYER: Final = re.compile(r"model\.layers\.(\d+)\.(.+)")
_NAMES: Final = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "mlp.gate.weight": "ffn_gate_inp.weight",
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
}
_PROJECTION: Final = re.compile(r"self_attn\.([qkv])_proj\.(weight|bias)")
_NETWORK: Final = re.compile(r"mlp\.(?:experts\.(\d+)\.|(shared_experts)\.)?(gate|up|down)_proj\.weight")
_ENDS: Final = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_MTP_HINT: Final = "Use --backend transformers."


def read_safetensors_model(folder: Path) -> StoredModel:
    """Raises UnsupportedModelError where the family or a stored type is not known here, CheckpointError."""
    config = read_config_file(folder)
    family = family_of_model_type(str(config["model_type"]))
    if family is None:
        raise UnsupportedModelError(
            f"{folder.name} is a {str(config['model_type'])[:60]}, which the ggml back end does not know.", _MTP_HINT
        )
    weights: dict[str, StoredWeight] = {}
    for path in checkpoint_files(folder):
        for tensor in read_header(path):
            weight = _weight(path, tensor, family)
            weights[weight.name] = weight
    if config.get("tie_word_embeddings"):
        weights.pop("output.weight", None)
    return StoredModel(
        folder.name, family, _numbers(config, family), weights, lambda key: bool(_HARMLESS.fullmatch(key))
    )


def _numbers(config: Mapping[str, Any], family: str) -> dict[str, object]:
    numbers: dict[str, object] = {}
    for key, value in config.items():
        if value is not None and key not in ("rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor"):
            numbers[_NUMBERS.get(key, key)] = value
    numbers |= _rope(config)
    for key, plain in (("hidden_act", "silu"), ("use_sliding_window", False), ("decoder_sparse_step", 1)):
        if numbers.get(key) == plain:
            del numbers[key]
    if not config.get("use_sliding_window"):
        numbers.pop("sliding_window", None)
    if numbers.get("mlp_only_layers") == []:
        del numbers["mlp_only_layers"]
    if family == "glm4moe" and numbers.get("mlp_layer_types") is not None:
        kinds = list(numbers.pop("mlp_layer_types"))  # type: ignore[call-overload]
        num_dense = next((i for i, kind in enumerate(kinds) if kind != "dense"), len(kinds))
        if any(kind == "dense" for kind in kinds[num_dense:]):
            raise UnsupportedModelError("Dense layers stand between MoE layers.", _MTP_HINT)
        numbers["leading_dense_block_count"] = num_dense
    return numbers


def _rope(config: Mapping[str, Any]) -> dict[str, object]:
    """Rotary embeddings: of the plain kind alone. Raises UnsupportedModelError."""
    found: dict[str, Any] = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    kind = found.pop("rope_type", None) or found.pop("type", None) or "default"
    base = found.pop("rope_theta", config.get("rope_theta", 10_000.0))
    share = found.pop("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    if kind != "default" or found:
        raise UnsupportedModelError(f"Rotary embeddings of the kind {kind!r} are not computed by ggml yet.", _MTP_HINT)
    head_dim = config.get("head_dim") or int(config["hidden_size"]) // int(config["num_attention_heads"])
    return {"rope.freq_base": float(base), "rope.dimension_count": int(head_dim * float(share))}


def _weight(path: Path, tensor: StoredTensor, family: str) -> StoredWeight:
    if tensor.dtype not in _TYPES:
        raise UnsupportedModelError(
            f"{path}: {tensor.key[:80]} is stored as {tensor.dtype}, which is not read yet.",
            "Use its bf16, fp16 or fp32 checkpoint, or a GGUF file.",
        )
    if not tensor.shape:
        raise CheckpointError(f"{path}: {tensor.key[:80]} holds a single value.", "Fetch the checkpoint again.")
    shape = tuple(reversed(tensor.shape))
    return StoredWeight(
        _name(tensor.key, family), _TYPES[tensor.dtype], shape, str(path), tensor.file_offset, tensor.num_bytes
    )


def _name(key: str, family: str) -> str:
    """The tensor's name in GGUF; the key itself where there is none."""
    if key in _ENDS:
        return _ENDS[key]
    layer = _LAYER.fullmatch(key)
    if layer is None:
        return key
    number, rest = layer.groups()
    if rest == "post_attention_layernorm.weight":
        rest = "post_attention_norm.weight" if family == "glm4moe" else "ffn_norm.weight"
    elif rest in _NAMES:
        rest = _NAMES[rest]
    elif found := _PROJECTION.fullmatch(rest):
        rest = f"attn_{found[1]}.{found[2]}"
    elif found := _NETWORK.fullmatch(rest):
        expert, shared, part = found.groups()
        rest = f"ffn_{part}{'_shexp' if shared else ''}{'.' + expert if expert else ''}.weight"
    else:
        return key
    return f"blk.{number}.{rest}"


class SafetensorsFiles:
    """A checkpoint folder, as the library reads it."""

    def __init__(self, folder: Path) -> None:
        self.path, self.stored = folder, read_safetensors_model(folder)
        config = read_config_file(folder)
        self.model_type = str(config["model_type"])
        self.number_format = formats_in_words(self.stored)
        self.end_token_sources = [config]

    def load_tokenizer(self) -> Any:
        """See ModelFiles."""
        tokenizer = fast_tokenizer_of(self.path)
        if tokenizer is not None:
            return tokenizer
        from engine.backends.transformers.config_and_tokenizer import load_tokenizer

        return load_tokenizer(self.path)

    def read_defaults(self) -> ModelDefaults:
        """See ModelFiles."""
        return read_model_defaults(self.path)

    def notices(self) -> list[str]:
        """See ModelFiles."""
        return list(choose_shards(self.path).notices)

    def not_finite(self, on_tensor: Callable[[int, int], None]) -> list[str]:
        """See ModelFiles."""
        return tensors_not_finite(self.path, on_tensor)
