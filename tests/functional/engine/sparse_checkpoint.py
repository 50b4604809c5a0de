"""A checkpoint of a big model's shape whose weights are holes in its files: all zeros, and no disk space."""

from __future__ import annotations

import json
from pathlib import Path

from tests.architectures.tiny import save_tokenizer

NUM_LAYERS, HIDDEN, NUM_EXPERTS, TOP_K = 48, 2048, 128, 8
EXPERT_SIZE = 192
"""A quarter of Qwen3-30B-A3B's, which makes it 15 GB instead of 57."""
NUM_HEADS, NUM_KV_HEADS, HEAD_DIM = 32, 4, 128
VOCAB = 4096

Shapes = dict[str, tuple[int, ...]]


def save_sparse_checkpoint(folder: Path) -> Path:
    """Writes it, a shard a layer, with a word-level tokenizer. It writes the word of token 0 for ever, as all of its
    logits are zero."""
    folder.mkdir(parents=True, exist_ok=True)
    shards = {f"model-{layer:05d}.safetensors": _layer(layer) for layer in range(NUM_LAYERS)}
    shards["model-head.safetensors"] = {
        "model.embed_tokens.weight": (VOCAB, HIDDEN),
        "model.norm.weight": (HIDDEN,),
        "lm_head.weight": (VOCAB, HIDDEN),
    }
    total_bytes = sum(_write(folder / name, shapes) for name, shapes in shards.items())
    weight_map = {key: name for name, shapes in shards.items() for key in shapes}
    index = {"metadata": {"total_size": total_bytes}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(_CONFIG))
    save_tokenizer(folder, "w0")
    return folder


def _layer(layer: int) -> Shapes:
    name = f"model.layers.{layer}"
    shapes: Shapes = {
        f"{name}.input_layernorm.weight": (HIDDEN,),
        f"{name}.post_attention_layernorm.weight": (HIDDEN,),
        f"{name}.self_attn.q_proj.weight": (NUM_HEADS * HEAD_DIM, HIDDEN),
        f"{name}.self_attn.k_proj.weight": (NUM_KV_HEADS * HEAD_DIM, HIDDEN),
        f"{name}.self_attn.v_proj.weight": (NUM_KV_HEADS * HEAD_DIM, HIDDEN),
        f"{name}.self_attn.o_proj.weight": (HIDDEN, NUM_HEADS * HEAD_DIM),
        f"{name}.self_attn.q_norm.weight": (HEAD_DIM,),
        f"{name}.self_attn.k_norm.weight": (HEAD_DIM,),
        f"{name}.mlp.gate.weight": (NUM_EXPERTS, HIDDEN),
    }
    for expert in range(NUM_EXPERTS):
        for part in ("gate_proj", "up_proj"):
            shapes[f"{name}.mlp.experts.{expert}.{part}.weight"] = (EXPERT_SIZE, HIDDEN)
        shapes[f"{name}.mlp.experts.{expert}.down_proj.weight"] = (HIDDEN, EXPERT_SIZE)
    return shapes


def _write(path: Path, shapes: Shapes) -> int:
    """A header, and a hole for the tensors; returns their bytes."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for key, shape in shapes.items():
        begin, end = end, end + 2 * _product(shape)
        header[key] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    return end


def _product(shape: tuple[int, ...]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product


_CONFIG = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": HIDDEN,
    "intermediate_size": 4 * EXPERT_SIZE,
    "moe_intermediate_size": EXPERT_SIZE,
    "num_hidden_layers": NUM_LAYERS,
    "num_attention_heads": NUM_HEADS,
    "num_key_value_heads": NUM_KV_HEADS,
    "head_dim": HEAD_DIM,
    "num_experts": NUM_EXPERTS,
    "num_experts_per_tok": TOP_K,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "vocab_size": VOCAB,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "max_position_embeddings": 32768,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
