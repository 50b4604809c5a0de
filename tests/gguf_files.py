"""Writes tiny GGUF models that llama.cpp runs: random weights, a real byte-level tokenizer, a chat template.

Weights of K-quants and MXFP4 are random blocks: the `gguf` package can read such types and not quantise to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind
from numpy.typing import NDArray

Array = NDArray[Any]

CHATML: Final = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
GLM: Final = (
    "[gMASK]<sop>{% for message in messages %}<|{{ message.role }}|>\n{{ message.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
_SPECIALS: Final = {
    "qwen3moe": ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    "glm4moe": ("<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>"),
}
_ENDS: Final = {"qwen3moe": ("<|im_end|>", "<|endoftext|>"), "glm4moe": ("<|user|>", "<|endoftext|>")}
_TEMPLATES: Final = {"qwen3moe": CHATML, "glm4moe": GLM}
_SPLITTERS: Final = {"qwen3moe": "qwen2", "glm4moe": "glm4"}
_TEXT: Final = (
    "The sea is wide and the night is long; the boats come home when the wind turns, and the people on the shore "
    "wait for them with lamps. In the morning there is bread, and coffee, and the news of the other islands. "
    "def main(): return [x for x in range(10) if x % 2 == 0] 1234567890 How many? What is the capital of France? Paris."
)
QUANTS: Final = {
    "F32": (Kind.F32, Kind.F32),
    "F16": (Kind.F16, Kind.F16),
    "BF16": (Kind.BF16, Kind.BF16),
    "Q8_0": (Kind.Q8_0, Kind.Q8_0),
    "Q4_0": (Kind.Q4_0, Kind.Q4_0),
    "Q4_K": (Kind.Q4_K, Kind.Q4_K),
    "Q4_K_M": (Kind.Q4_K, Kind.Q6_K),
    "Q6_K": (Kind.Q6_K, Kind.Q6_K),
    "MXFP4": (Kind.MXFP4, Kind.MXFP4),
}
"""By name: the type of matrices, and that of the down-projections of every second layer, of values and of the head."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The model's shape. K-quants take rows of multiples of 256 values, other quants of 32."""

    layers: int = 3
    hidden: int = 256
    experts: int = 8
    top_k: int = 2
    expert_ff: int = 256
    dense_ff: int = 256
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    context: int = 4096
    merges: int = 100
    tied: bool = False
    """Whether there is no output matrix, so that the embedding is used."""
    # glm4moe alone:
    dense_layers: int = 1
    shared_experts: int = 1
    qk_norm: bool = True
    mtp_layers: int = 0


def write_gguf(
    path: Path,
    arch: str = "qwen3moe",
    quant: str = "Q4_K_M",
    seed: int = 0,
    *,
    extra: Mapping[str, object] | None = None,
    template: str | None = "",
    alignment: int = 32,
    split_max_tensors: int = 0,
    skip: Callable[[str], bool] = lambda name: False,
    **sizes: Any,
) -> Path:
    """Writes a model of `arch` (qwen3moe, glm4moe) and returns `path`, or the first part of a split model.

    The same arguments give the same bytes. `extra` are further keys, which replace those written otherwise (None: the
    key is left out; `general.architecture` changes that name alone); `template` empty: the architecture's, None: none;
    tensors for which `skip` holds are left out.
    """
    size, extra = Sizes(**sizes), dict(extra or {})
    named = str(extra.pop("general.architecture", arch))
    writer = gguf.GGUFWriter(path, named, split_max_tensors=split_max_tensors)
    if alignment != 32:
        writer.add_custom_alignment(alignment)
    tokenizer = tokenizer_keys(arch, size.merges, template)
    for key, value in {**_keys(arch, size), **tokenizer, **extra}.items():
        if value is not None:
            add_key(writer, key, value)
    vocabulary = tokenizer["tokenizer.ggml.tokens"]
    assert isinstance(vocabulary, list)
    rng = np.random.default_rng(seed)
    for name, kind, weights in _tensors(arch, quant, size, len(vocabulary), rng):
        if not skip(name):
            writer.add_tensor(name, weights, raw_dtype=None if kind in (Kind.F32, Kind.F16) else kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    if not split_max_tensors or path.exists():
        return path
    return min(path.parent.glob(f"{path.stem}-00001-of-*.gguf"))


def _keys(arch: str, size: Sizes) -> dict[str, object]:
    keys: dict[str, object] = {
        "general.name": f"a tiny {arch}",
        f"{arch}.block_count": size.layers + size.mtp_layers,
        f"{arch}.context_length": size.context,
        f"{arch}.embedding_length": size.hidden,
        f"{arch}.feed_forward_length": size.dense_ff,
        f"{arch}.attention.head_count": size.heads,
        f"{arch}.attention.head_count_kv": size.kv_heads,
        f"{arch}.attention.key_length": size.head_dim,
        f"{arch}.attention.value_length": size.head_dim,
        f"{arch}.attention.layer_norm_rms_epsilon": 1e-6,
        f"{arch}.rope.freq_base": 1e6,
        f"{arch}.expert_count": size.experts,
        f"{arch}.expert_used_count": size.top_k,
        f"{arch}.expert_feed_forward_length": size.expert_ff,
    }
    if arch == "glm4moe":
        keys |= {
            f"{arch}.rope.dimension_count": size.head_dim // 2,
            f"{arch}.leading_dense_block_count": size.dense_layers,
            f"{arch}.expert_shared_count": size.shared_experts,
            f"{arch}.expert_gating_func": 2,
            f"{arch}.expert_weights_scale": 1.5,
            f"{arch}.expert_weights_norm": True,
            f"{arch}.nextn_predict_layers": size.mtp_layers,
        }
    return keys


def add_key(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    """Writes a key with the type that its value has."""
    if isinstance(value, list):
        writer.add_array(key, value)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_string(key, str(value))


# -- the tokenizer -----------------------------------------------------------------------------------------------------


def tokenizer_keys(arch: str, num_merges: int = 100, template: str | None = "") -> dict[str, object]:
    """A byte-level BPE tokenizer of 256 bytes, `num_merges` merges and the architecture's special tokens."""
    tokens, merges = _vocabulary(num_merges)
    specials = _SPECIALS[arch]
    number = {token: len(tokens) + position for position, token in enumerate(specials)}
    eos, pad = _ENDS[arch]
    keys: dict[str, object] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": _SPLITTERS[arch],
        "tokenizer.ggml.tokens": [*tokens, *specials],
        "tokenizer.ggml.token_type": [1] * len(tokens) + [3] * len(specials),
        "tokenizer.ggml.merges": list(merges),
        "tokenizer.ggml.eos_token_id": number[eos],
        "tokenizer.ggml.padding_token_id": number[pad],
        "tokenizer.ggml.add_bos_token": False,
    }
    if template is not None:
        keys["tokenizer.chat_template"] = template or _TEMPLATES[arch]
    return keys


@cache
def _vocabulary(num_merges: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(tokens, merges) as learnt from a short text."""
    import json

    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(  # type: ignore[call-arg]  # the stub lacks what it takes
        vocab_size=256 + num_merges,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        min_frequency=1,
    )
    tokenizer.train_from_iterator([_TEXT], trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = tuple(sorted(model["vocab"], key=model["vocab"].__getitem__))
    return tokens, tuple(" ".join(pair) for pair in model["merges"])


# -- the weights -------------------------------------------------------------------------------------------------------


def _tensors(
    arch: str, quant: str, size: Sizes, vocabulary: int, rng: np.random.Generator
) -> Iterator[tuple[str, Kind, Array]]:
    usual, finer = QUANTS[quant]

    def matrix(name: str, kind: Kind, *shape: int) -> tuple[str, Kind, Array]:
        return f"{name}.weight", kind, random_weights(kind, shape, rng)

    yield matrix("token_embd", usual, vocabulary, size.hidden)
    yield _vector("output_norm.weight", size.hidden, rng, mean=1)
    if not size.tied:
        yield matrix("output", finer, vocabulary, size.hidden)
    for layer in range(size.layers + size.mtp_layers):
        name = f"blk.{layer}"
        down = finer if layer % 2 == 0 else usual
        yield from _attention(arch, name, usual, finer, size, rng)
        norm = "post_attention_norm" if arch == "glm4moe" else "ffn_norm"
        yield _vector(f"{name}.{norm}.weight", size.hidden, rng, mean=1)
        if arch == "glm4moe" and layer < size.dense_layers:
            yield matrix(f"{name}.ffn_gate", usual, size.dense_ff, size.hidden)
            yield matrix(f"{name}.ffn_up", usual, size.dense_ff, size.hidden)
            yield matrix(f"{name}.ffn_down", down, size.hidden, size.dense_ff)
        else:
            yield from _experts(arch, name, usual, down, size, rng)
        if layer >= size.layers:
            yield matrix(f"{name}.nextn.eh_proj", usual, size.hidden, 2 * size.hidden)
            yield _vector(f"{name}.nextn.enorm.weight", size.hidden, rng, mean=1)
            yield _vector(f"{name}.nextn.hnorm.weight", size.hidden, rng, mean=1)


def _attention(
    arch: str, name: str, usual: Kind, finer: Kind, size: Sizes, rng: np.random.Generator
) -> Iterator[tuple[str, Kind, Array]]:
    queries, keys = size.heads * size.head_dim, size.kv_heads * size.head_dim
    yield _vector(f"{name}.attn_norm.weight", size.hidden, rng, mean=1)
    for part, rows, kind in (("q", queries, usual), ("k", keys, usual), ("v", keys, finer)):
        yield f"{name}.attn_{part}.weight", kind, random_weights(kind, (rows, size.hidden), rng)
        if arch == "glm4moe":
            yield _vector(f"{name}.attn_{part}.bias", rows, rng, mean=0)
    yield f"{name}.attn_output.weight", usual, random_weights(usual, (size.hidden, queries), rng)
    if arch == "qwen3moe" or size.qk_norm:
        yield _vector(f"{name}.attn_q_norm.weight", size.head_dim, rng, mean=1)
        yield _vector(f"{name}.attn_k_norm.weight", size.head_dim, rng, mean=1)


def _experts(
    arch: str, name: str, usual: Kind, down: Kind, size: Sizes, rng: np.random.Generator
) -> Iterator[tuple[str, Kind, Array]]:
    router = random_weights(Kind.F32, (size.experts, size.hidden), rng)
    yield f"{name}.ffn_gate_inp.weight", Kind.F32, router
    if arch == "glm4moe":
        yield _vector(f"{name}.exp_probs_b.bias", size.experts, rng, mean=0)
    for part, kind, rows, columns in (
        ("gate", usual, size.expert_ff, size.hidden),
        ("up", usual, size.expert_ff, size.hidden),
        ("down", down, size.hidden, size.expert_ff),
    ):
        yield f"{name}.ffn_{part}_exps.weight", kind, random_weights(kind, (size.experts, rows, columns), rng)
    if arch == "glm4moe" and size.shared_experts:
        wide = size.expert_ff * size.shared_experts
        for part, kind, rows, columns in (
            ("gate", usual, wide, size.hidden),
            ("up", usual, wide, size.hidden),
            ("down", down, size.hidden, wide),
        ):
            yield f"{name}.ffn_{part}_shexp.weight", kind, random_weights(kind, (rows, columns), rng)


def _vector(name: str, length: int, rng: np.random.Generator, mean: float) -> tuple[str, Kind, Array]:
    return name, Kind.F32, (mean + 0.1 * rng.standard_normal(length)).astype(np.float32)


def random_weights(kind: Kind, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Weights [..., rows, columns] of mean 0 and deviation 1 / sqrt(columns), as the type stores them."""
    deviation = shape[-1] ** -0.5
    if kind in (Kind.Q4_K, Kind.Q6_K, Kind.MXFP4):
        return _random_blocks(kind, shape, deviation, rng)
    weights = (rng.standard_normal(shape) * deviation).astype(np.float32)
    if kind is Kind.F32:
        return weights
    if kind is Kind.F16:
        return weights.astype(np.float16)
    quantised: Array = gguf.quants.quantize(weights, kind)
    return quantised


def _random_blocks(kind: Kind, shape: tuple[int, ...], deviation: float, rng: np.random.Generator) -> Array:
    """Blocks of random bytes, but for their scales."""
    values, size = gguf.constants.GGML_QUANT_SIZES[kind]
    assert shape[-1] % values == 0, f"rows of {shape[-1]} values are no blocks of {kind.name}"
    blocks = rng.integers(0, 256, (*shape[:-1], shape[-1] // values, size), dtype=np.uint8)
    if kind is Kind.MXFP4:  # one exponent, then 32 values of -6 to 6 with a deviation of 3
        blocks[..., 0] = 127 + round(np.log2(deviation / 3))
    elif kind is Kind.Q4_K:  # scale, scale of minima: values of 0 to 15 times 0 to 63, less 0 to 63
        scale = np.array([deviation / 258, 7.5 * deviation / 258], np.float16)
        blocks[..., :4] = scale.view(np.uint8)
    else:  # the scale comes last: values of -32 to 31 times -128 to 127
        blocks[..., -2:] = np.array([deviation / 1365], np.float16).view(np.uint8)
    return blocks.reshape(*shape[:-1], -1)
