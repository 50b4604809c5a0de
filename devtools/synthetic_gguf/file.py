"""The file itself: header, keys, tensor infos, then tensors one after the other, in little memory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from gguf import ExpertGatingFuncType, GGUFWriter, RopeScalingType

from devtools.synthetic_gguf.precision import FILE_TYPES
from devtools.synthetic_gguf.shapes import Shape
from devtools.synthetic_gguf.tensors import Tensor, TensorPlan
from devtools.synthetic_gguf.vocabulary import Vocabulary

OnProgress = Callable[[int, int], None]
"""Called with bytes written and bytes in all."""


def write_gguf(
    path: Path, name: str, shape: Shape, mixture: str, vocabulary: Vocabulary, seed: int, on_progress: OnProgress
) -> int:
    """Writes beside `path` and renames; returns the file's size. Raises OSError, and SystemExit for want of space."""
    plan = TensorPlan(shape, mixture, len(vocabulary.tokens), vocabulary.specials, seed)
    tensors = list(plan.tensors())
    total_bytes = sum(tensor.num_bytes for tensor in tensors)
    free_bytes = shutil.disk_usage(path.parent).free
    if free_bytes < total_bytes + (256 << 20):
        raise SystemExit(f"The file takes {total_bytes / 1e9:.1f} GB; {free_bytes / 1e9:.1f} GB are free.")
    partial = path.with_name(f"{path.name}.part")
    try:
        writer = GGUFWriter(partial, shape.family)
        _add_keys(writer, name, shape, mixture)
        vocabulary.add_to(writer)
        for tensor in tensors:
            dtype = np.dtype(np.float32)
            writer.add_tensor_info(tensor.name, tensor.shape, dtype, tensor.num_bytes, raw_dtype=tensor.stored)
        writer.write_header_to_file(path=partial)
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        _write_contents(writer, tensors, total_bytes, on_progress)
        writer.close()
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)
    return path.stat().st_size


def _write_contents(writer: GGUFWriter, tensors: list[Tensor], total_bytes: int, on_progress: OnProgress) -> None:
    out, written = writer.fout[0], 0
    writer.write_padding(out, out.tell())
    for tensor in tensors:
        start = out.tell()
        for piece in tensor.contents():
            out.write(piece)
        assert out.tell() - start == tensor.num_bytes, f"{tensor.name} came out at {out.tell() - start} bytes"
        writer.write_padding(out, tensor.num_bytes)
        written += tensor.num_bytes
        on_progress(written, total_bytes)
    out.flush()
    os.fsync(out.fileno())  # or the first bench would measure the write-back too


def _add_keys(writer: GGUFWriter, name: str, shape: Shape, mixture: str) -> None:
    writer.add_type("model")
    writer.add_name(f"synthetic {name}")
    writer.add_file_type(FILE_TYPES[mixture])
    writer.add_quantization_version(2)
    writer.add_block_count(shape.num_layers)
    writer.add_context_length(shape.context_tok)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.dense_size or shape.expert_size * 4)
    writer.add_head_count(shape.num_heads)
    writer.add_head_count_kv(shape.num_kv_heads)
    writer.add_layer_norm_rms_eps(shape.norm_eps)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_expert_count(shape.num_experts)
    writer.add_expert_used_count(shape.top_k)
    writer.add_expert_feed_forward_length(shape.expert_size)
    _add_attention_keys(writer, shape)
    if shape.family == "glm4moe":
        writer.add_rope_dimension_count(shape.head_dim)
        writer.add_expert_shared_count(1)
        writer.add_expert_weights_scale(1.0)
        writer.add_expert_weights_norm(True)
        writer.add_expert_gating_func(ExpertGatingFuncType.SIGMOID)
        writer.add_leading_dense_block_count(0)
        writer.add_nextn_predict_layers(0)
    if shape.family == "deepseek2":
        writer.add_expert_shared_count(shape.shared_size // shape.expert_size)
        writer.add_expert_weights_scale(1.0)
        writer.add_leading_dense_block_count(shape.num_dense)


def _add_attention_keys(writer: GGUFWriter, shape: Shape) -> None:
    latent = shape.latent
    if latent is None:
        writer.add_key_length(shape.head_dim)
        writer.add_value_length(shape.head_dim)
    else:
        writer.add_kv_lora_rank(latent.rank)
        writer.add_key_length(latent.rank + latent.rope_dim)
        writer.add_value_length(latent.rank)
        writer.add_key_length_mla(latent.plain_dim + latent.rope_dim)
        writer.add_value_length_mla(latent.value_dim)
        writer.add_rope_dimension_count(latent.rope_dim)
        writer.add_rope_scaling_yarn_log_mul(0.0707)
    if shape.window_tok:
        writer.add_sliding_window(shape.window_tok)
    if shape.yarn_factor:
        writer.add_rope_scaling_type(RopeScalingType.YARN)
        writer.add_rope_scaling_factor(shape.yarn_factor)
        writer.add_rope_scaling_orig_ctx_len(4096)
