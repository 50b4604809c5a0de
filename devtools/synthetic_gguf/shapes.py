"""The sizes of known models, by name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Latent:
    """Lengths of multi-head latent attention: of the compressed row, and of a head's parts."""

    rank: int
    plain_dim: int
    rope_dim: int
    value_dim: int


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
    num_dense: int = 0
    """Layers without routed experts, the first ones."""
    dense_size: int = 0
    latent: Latent | None = None
    window_tok: int = 0
    """Of every second layer's attention; 0: there are no windows."""
    yarn_factor: float = 0.0

    @property
    def has_head_norms(self) -> bool:
        """Each head of queries and keys is normed."""
        return self.family == "qwen3moe"

    @property
    def has_biases(self) -> bool:
        """Every product has one."""
        return self.family == "gpt-oss"


SHAPES = {
    "qwen3-30b-a3b": Shape("qwen3moe", 48, 2048, 32, 4, 128, 128, 8, 768),
    # OLMoE's sizes in qwen3moe's architecture: the same bytes and products, but norms a head instead of a projection.
    "olmoe-7b": Shape("qwen3moe", 16, 2048, 16, 16, 128, 64, 8, 1024, rope_base=1e4, norm_eps=1e-5, context_tok=4096),
    "gpt-oss-20b": Shape(
        *("gpt-oss", 24, 2880, 64, 8, 64, 32, 4, 2880),
        rope_base=1.5e5,
        norm_eps=1e-5,
        context_tok=131072,
        window_tok=128,
        yarn_factor=32.0,
    ),
    "deepseek-v2-lite": Shape(
        *("deepseek2", 27, 2048, 16, 1, 192, 64, 6, 1408, 2816),
        rope_base=1e4,
        context_tok=163840,
        num_dense=1,
        dense_size=10944,
        latent=Latent(512, 128, 64, 128),
        yarn_factor=40.0,
    ),
    # The demo's sizes, with an output matrix of its own: tied to the embeddings, made-up ones repeat one token forever.
    "demo": Shape("glm4moe", 30, 576, 9, 3, 64, 16, 2, 288, 1152, rope_base=1e5, norm_eps=1e-5, context_tok=8192),
    "tiny-gpt-oss": Shape("gpt-oss", 4, 256, 4, 2, 64, 16, 4, 256, context_tok=2048, window_tok=32, yarn_factor=2.0),
    "tiny-deepseek2": Shape(
        *("deepseek2", 4, 256, 4, 1, 64, 16, 4, 256, 256),
        context_tok=2048,
        num_dense=1,
        dense_size=512,
        latent=Latent(64, 32, 32, 32),
        yarn_factor=2.0,
    ),
    "tiny-qwen3moe": Shape("qwen3moe", 4, 256, 4, 2, 64, 16, 4, 256, context_tok=2048),
    "tiny-glm4moe": Shape("glm4moe", 4, 256, 4, 2, 64, 16, 4, 256, 256, context_tok=2048),
}
