"""What a model type of transformers calls what GGUF has other words for: keys of config.json, and a layer's tensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from engine.backends.ggml.stored_weight import StoredWeight
from engine.checkpoint.config_file import NUM_EXPERTS, TOP_K

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
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "norm_topk_prob": "expert_weights_norm",
    "routed_scaling_factor": "expert_weights_scale",
    "n_shared_experts": "expert_shared_count",
    "n_group": "expert_group_count",
    "topk_group": "expert_group_used_count",
    "first_k_dense_replace": "leading_dense_block_count",
}
_TENSORS: Final = {
    r"mlp\.experts\.(\d+)\.(gate|up|down)_proj\.weight": r"ffn_\2.\1.weight",
    r"mlp\.shared_experts?\.(gate|up|down)_proj\.weight": r"ffn_\1_shexp.weight",
    r"mlp\.shared_expert_gate\.weight": "ffn_gate_inp_shexp.weight",
    r"mlp\.(gate|up|down)_proj\.weight": r"ffn_\1.weight",
    r"mlp\.gate\.weight": "ffn_gate_inp.weight",
    r"mlp\.gate\.e_score_correction_bias": "exp_probs_b.bias",
    r"self_attn\.([qkv])_proj\.(weight|bias)": r"attn_\1.\2",
    r"self_attn\.([qk])_norm\.weight": r"attn_\1_norm.weight",
    r"self_attn\.o_proj\.(weight|bias)": r"attn_output.\1",
    r"input_layernorm\.weight": "attn_norm.weight",
    r"post_attention_layernorm\.weight": "ffn_norm.weight",
}


@dataclass(frozen=True, slots=True)
class CheckpointWords:
    """One model type's own words, beside those that all have in common, which they replace."""

    numbers: Mapping[str, str] = field(default_factory=dict)
    """GGUF's keys by config.json's."""
    defaults: Mapping[str, object] = field(default_factory=dict)
    """The library's values for keys that a config.json may leave out."""
    tensors: Mapping[str, str] = field(default_factory=dict)
    """Patterns of a layer's tensors, as behind `model.layers.3.`, and what GGUF calls them behind `blk.3.`."""
    fused: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """The same for gate and up in one tensor, the gate's rows first: both names. `{}`: the expert's number, of a stack
    of experts."""
    makes: Callable[[dict[str, StoredWeight]], None] | None = None
    """Puts tensors that are made as they are read in the place of those they are made of; by name."""
    look: Callable[[dict[str, Any]], Mapping[str, object]] = lambda config: {}
    """Takes keys out of a config.json and gives further numbers, by GGUF's keys."""

    def number(self, key: str) -> str:
        """GGUF's key for one of config.json; the key itself where there is none."""
        return self.numbers.get(key) or _NUMBERS.get(key, key)

    def tensor(self, name: str) -> str | None:
        """GGUF's name of a layer's tensor; None: there is none."""
        for pattern, target in (*self.tensors.items(), *_TENSORS.items()):
            if found := re.fullmatch(pattern, name):
                return found.expand(target)
        return None

    def halves(self, name: str) -> tuple[str, str] | None:
        """The names of gate and up where one tensor holds both."""
        for pattern, targets in self.fused.items():
            if re.fullmatch(pattern, name):
                return targets
        return None
