"""Random checkpoints with attention as wide as that of real models: 64 heads, contexts of thousands of tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tests.architectures.tiny import save_tokenizer

NUM_HEADS, CONTEXT_TOK = 64, 8192
_COMMON: dict[str, Any] = {
    "vocab_size": 32_000,
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 3,
    "num_attention_heads": NUM_HEADS,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": CONTEXT_TOK,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_EXPERTS = {"num_experts": 32, "num_experts_per_tok": 8, "moe_intermediate_size": 256}
_LATENT = {
    "num_hidden_layers": 2,  # a dense one and one with experts: a third would cost minutes and show the same
    "n_routed_experts": 32,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 256,
    "num_key_value_heads": NUM_HEADS,
    "q_lora_rank": 256,
    "kv_lora_rank": 256,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 4,
    "topk_group": 2,
}
WIDE: dict[str, dict[str, Any]] = {
    "qwen3_moe": _EXPERTS,
    "gpt_oss": {
        "num_local_experts": 32,
        "num_experts_per_tok": 8,
        "intermediate_size": 256,
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    "deepseek_v3": _LATENT,
    "deepseek_v32": {**_LATENT, "index_n_heads": 8, "index_head_dim": 64, "index_topk": 256},
    "cohere2_moe": {**_EXPERTS, "sliding_window": 512},
    "qwen3_next": {
        **_EXPERTS,
        "shared_expert_intermediate_size": 256,
        "linear_key_head_dim": 64,
        "linear_value_head_dim": 64,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "layer_types": ["linear_attention", "linear_attention", "full_attention"],
    },
}
"""By model type: grouped heads, attention in the open with sinks and windows, latent attention, that with an indexer,
windows, and linear attention."""


def save_wide(folder: Path, name: str) -> Path:
    """A random bf16 checkpoint of `WIDE[name]`, with the word-level tokenizer of the tiny ones."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(name, **{**_COMMON, **WIDE[name]})
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, experts_implementation="eager").eval()
    with torch.no_grad():
        model.get_output_embeddings().weight[_COMMON["eos_token_id"]] = 0  # an answer never ends by itself
    model.save_pretrained(folder)
    save_tokenizer(folder)
    return folder
