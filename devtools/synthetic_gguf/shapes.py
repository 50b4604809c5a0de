"""The sizes of known models, by name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """A Mixture-of-Experts model's sizes; `family` is the architecture's name in GGUF."""

    family: str
    num_layers: int
    hidden: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    num_experts: int
    top_k: int
    expert_size: int
    """Rows of one routed expert's gate and up projections."""
    shared_size: int = 0
    """The same of the shared expert; 0: there is none."""
    rope_base: float = 1e6
    norm_eps: float = 1e-6
    context_tok: int = 32768

    @property
    def has_head_norms(self) -> bool:
        """Each head of queries and keys is normed."""
        return self.family == "qwen3moe"


SHAPES = {
    "qwen3-30b-a3b": Shape("qwen3moe", 48, 2048, 32, 4, 128, 128, 8, 768),
    # OLMoE's sizes in qwen3moe's architecture: the same bytes and products, but norms a head instead of a projection.
    "olmoe-7b": Shape("qwen3moe", 16, 2048, 16, 16, 128, 64, 8, 1024, rope_base=1e4, norm_eps=1e-5, context_tok=4096),
    # The demo's sizes, with an output matrix of its own: tied to the embeddings, made-up ones repeat one token forever.
    "demo": Shape("glm4moe", 30, 576, 9, 3, 64, 16, 2, 288, 1152, rope_base=1e5, norm_eps=1e-5, context_tok=8192),
    "tiny-qwen3moe": Shape("qwen3moe", 4, 256, 4, 2, 64, 16, 4, 256, context_tok=2048),
    "tiny-glm4moe": Shape("glm4moe", 4, 256, 4, 2, 64, 16, 4, 256, 256, context_tok=2048),
}
