"""Checkpoints with many experts whose routers behave as trained ones do, for tests and benches of prediction.

The residual stream is dominated by what the token brings, and a layer adds little to it: attention, experts, and a
constant shift of its own (a bias of the attention output). So routers of consecutive layers see correlated inputs,
off by a constant that can be learned. Router rows and norm weights are of skewed sizes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

VOCAB = 2048


class WideShape(NamedTuple):
    """What one may choose; all else is as small as it can be."""

    model_type: str
    num_experts: int
    top_k: int
    hidden: int = 512
    num_layers: int = 5
    dtype: torch.dtype = torch.bfloat16
    more: tuple[tuple[str, Any], ...] = ()


_GROUPED = (("n_group", 8), ("topk_group", 4), ("first_k_dense_replace", 0), ("q_lora_rank", 64), ("kv_lora_rank", 32))
_HEADS = (("qk_rope_head_dim", 32), ("qk_nope_head_dim", 32), ("v_head_dim", 64), ("n_shared_experts", 1))
WIDE_SHAPES = {
    "qwen3_moe": WideShape("qwen3_moe", 128, 8),
    "olmoe": WideShape("olmoe", 64, 8),
    "deepseek_v3": WideShape("deepseek_v3", 64, 8, more=(*_GROUPED, *_HEADS)),
}

_ATTENTION, _EXPERTS, _SHIFT = 0.35, 0.3, 0.45
"""Sizes of what a layer adds, the token's own part of the residual being 1."""
_LOGIT_SPREAD = 1.5


def save_wide_checkpoint(folder: Path, shape: WideShape, seed: int = 0) -> Path:
    """Writes safetensors, the config and a tokenizer of bytes into `folder`."""
    torch.manual_seed(seed)
    config = AutoConfig.for_model(
        shape.model_type,
        vocab_size=VOCAB,
        hidden_size=shape.hidden,
        intermediate_size=64,
        moe_intermediate_size=32 if shape.model_type != "olmoe" else 64,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=8,
        num_key_value_heads=8 if shape.model_type == "deepseek_v3" else 2,
        head_dim=32 if shape.model_type == "deepseek_v3" else 64,  # there: of the rotated part
        num_experts=shape.num_experts,
        n_routed_experts=shape.num_experts,
        num_experts_per_tok=shape.top_k,
        max_position_embeddings=1024,
        attention_bias=True,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        **dict(shape.more),
    )
    model = AutoModelForCausalLM.from_config(config, dtype=shape.dtype, experts_implementation="eager").eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            _fill(name, value, shape.hidden)
        for name, value in model.named_buffers():
            if "correction_bias" in name:
                value.copy_(torch.randn(value.shape) * 0.02)
    model.save_pretrained(folder)
    _save_tokenizer(folder)
    return folder


def _fill(name: str, value: nn.Parameter, hidden: int) -> None:
    drawn = torch.randn(value.shape)
    if value.dim() == 1:
        is_shift = name.endswith("o_proj.bias")
        value.copy_(drawn * _SHIFT if is_shift else drawn * 0 if "bias" in name else torch.exp(0.25 * drawn))
    elif "gate.weight" in name:  # the router
        value.copy_(drawn * torch.exp(0.4 * torch.randn(len(value), 1)) * _LOGIT_SPREAD / hidden**0.5)
    elif "embed_tokens" in name:
        value.copy_(drawn)
    else:
        fan_in = value.shape[-1]
        gain = _ATTENTION * 2 if "o_proj" in name else _EXPERTS * 6 if "down_proj" in name else 1.0
        value.copy_(drawn * gain / fan_in**0.5)


def _save_tokenizer(folder: Path) -> None:
    """One token a byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(BPE({piece: number for number, piece in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=backend).save_pretrained(folder)


if __name__ == "__main__":
    save_wide_checkpoint(Path(sys.argv[2]), WIDE_SHAPES[sys.argv[1]])
