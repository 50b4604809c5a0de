"""Tiny random checkpoints of every architecture the engine claims, saved by the unmodified library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

VOCAB = 128
NUM_EXPERTS = 8
TOP_K = 2

_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_ROUTED = {"num_experts": NUM_EXPERTS, "num_experts_per_tok": TOP_K}
_LOCAL = {"num_local_experts": NUM_EXPERTS, "num_experts_per_tok": TOP_K}
_N_ROUTED = {"n_routed_experts": NUM_EXPERTS, "num_experts_per_tok": TOP_K, "moe_intermediate_size": 32}
_SMALL = {"moe_intermediate_size": 32, "head_dim": 16}
_GROUPS = {"n_group": 1, "topk_group": 1}
_INDEXER = {"index_n_heads": 2, "index_head_dim": 16, "index_topk": 8}
_LINEAR = {
    "shared_expert_intermediate_size": 32,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "layer_types": ["linear_attention", "linear_attention", "full_attention"],
}
_MLA = {
    **_N_ROUTED,
    "num_key_value_heads": 4,
    "q_lora_rank": 32,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 2,
    "topk_group": 1,
}

SUPPORTED: dict[str, dict[str, Any]] = {
    "qwen3_moe": {**_ROUTED, **_SMALL, "norm_topk_prob": True},
    "olmoe": _ROUTED,
    "mixtral": _LOCAL,
    "deepseek_v2": {**_MLA, "topk_method": "greedy"},
    "deepseek_v3": _MLA,
    "deepseek_v32": {**_MLA, **_INDEXER},
    "deepseek_v4": {
        **_N_ROUTED,
        **_INDEXER,
        "head_dim": 32,
        "q_lora_rank": 32,
        "o_lora_rank": 16,
        "o_groups": 2,
        "num_hash_layers": 1,
        "num_key_value_heads": 1,
        "qk_rope_head_dim": 8,
        "sliding_window": 16,
    },
    "glm_moe_dsa": {**_MLA, **_INDEXER},
    "glm4_moe": {**_N_ROUTED, **_GROUPS, "head_dim": 16, "first_k_dense_replace": 1, "n_shared_experts": 1},
    "glm4_moe_lite": _MLA,
    "gpt_oss": {
        **_LOCAL,
        "head_dim": 16,
        "sliding_window": 16,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "granitemoe": _LOCAL,
    "granitemoeshared": {**_LOCAL, "shared_intermediate_size": 32},
    "qwen2_moe": {
        **_ROUTED,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
        "decoder_sparse_step": 1,
        "norm_topk_prob": True,
    },
    "qwen3_next": {**_ROUTED, **_SMALL, **_LINEAR, "norm_topk_prob": True},
    "qwen3_5_moe_text": {**_ROUTED, **_SMALL, **_LINEAR, "norm_topk_prob": True},
    "minimax": {**_LOCAL, "head_dim": 16},
    "minimax_m2": {**_LOCAL, "head_dim": 16},
    "ernie4_5_moe": {
        "moe_num_experts": NUM_EXPERTS,
        "moe_k": TOP_K,
        "moe_intermediate_size": 32,
        "moe_layer_start_index": 1,
        "moe_num_shared_experts": 1,
    },
    "lfm2_moe": {
        **_ROUTED,
        "moe_intermediate_size": 32,
        "num_dense_layers": 1,
        "layer_types": ["conv", "full_attention", "conv"],
    },
    "hunyuan_v1_moe": {"num_experts": NUM_EXPERTS, "moe_topk": [TOP_K] * 3, "head_dim": 16},
    "phimoe": _LOCAL,
    "jamba": {
        **_ROUTED,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 1,
        "expert_layer_offset": 0,
        "mamba_d_state": 8,
        "mamba_dt_rank": 8,
    },
    "dots1": {**_N_ROUTED, **_GROUPS, "head_dim": 16, "first_k_dense_replace": 1, "n_shared_experts": 1},
    "nemotron_h": {
        **_N_ROUTED,
        **_GROUPS,
        "moe_shared_expert_intermediate_size": 32,
        "head_dim": 16,
        "layers_block_type": ["mamba", "moe", "attention"],
        "mamba_num_heads": 4,
        "mamba_head_dim": 16,
        "ssm_state_size": 8,
        "n_groups": 1,
    },
    "afmoe": {**_ROUTED, **_SMALL, "num_shared_experts": 1, "num_dense_layers": 1},
    "gemma4_text": {
        "enable_moe_block": True,
        "num_experts": NUM_EXPERTS,
        "top_k_experts": TOP_K,
        "global_head_dim": 16,
        "vocab_size_per_layer_input": VOCAB,
        "hidden_size_per_layer_input": 16,
        **_SMALL,
    },
    "cohere2_moe": {**_ROUTED, "head_dim": 16},
    "hy_v3": {**_ROUTED, **_SMALL},
    "flex_olmo": _ROUTED,
    "exaone_moe": {**_ROUTED, **_SMALL},
}
"""Architectures whose experts class carries the experts interface, by model type."""

UNSUPPORTED: dict[str, dict[str, Any]] = {
    "jetmoe": {**_LOCAL, "kv_channels": 16},
    "llama4_text": {
        "num_local_experts": NUM_EXPERTS,
        "num_experts_per_tok": 1,
        "intermediate_size_mlp": 64,
        "head_dim": 16,
    },
    "llama": {},
}
"""Architectures that must be refused before loading: no experts interface, or no experts at all."""


def save_checkpoint(
    folder: Path,
    name: str,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    shard_bytes: int | str = "50GB",
    num_positions: int = 256,
    **changes: Any,
) -> Path:
    """A random checkpoint of architecture `name` in `folder`, with a word-level tokenizer of `VOCAB` words. `changes`:
    of the configuration."""
    options = {**_COMMON, "max_position_embeddings": num_positions, **(SUPPORTED | UNSUPPORTED)[name], **changes}
    torch.manual_seed(seed)
    config = AutoConfig.for_model(name, **options)
    model = AutoModelForCausalLM.from_config(config, dtype=dtype, experts_implementation="eager").eval()
    with torch.no_grad():
        for key, value in model.named_parameters():
            if value.is_floating_point() and value.dim() > 1:
                scale = 0.5 if "gate.weight" in key or "router" in key else 0.15
                value.copy_(torch.randn(value.shape) * scale)
    model.save_pretrained(folder, max_shard_size=shard_bytes)
    save_tokenizer(folder)
    return folder


def save_tokenizer(folder: Path, first: str = "<pad>") -> None:
    """Words `w3 w4 ...`, one token each, and three special tokens; `first`: a word that takes the first one's place."""
    vocab = {first: 0, "<s>": 1, "</s>": 2} | {f"w{number}": number for number in range(3, VOCAB)}
    backend = Tokenizer(WordLevel(vocab, unk_token=first))
    backend.pre_tokenizer = WhitespaceSplit()
    special = {"pad_token": first} if first == "<pad>" else {}
    PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>", **special).save_pretrained(
        folder
    )


def save_endless_checkpoint(folder: Path) -> Path:
    """A tiny checkpoint that never ends an answer by itself."""
    save_checkpoint(folder, "qwen3_moe")
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"][2] = 0
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder
