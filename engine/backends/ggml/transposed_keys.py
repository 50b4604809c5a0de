"""Makes the key part of a joint matrix `kv_b` the matrix that queries are multiplied with: transposed, head by head.

Newer GGUF files store it so (`attn_k_b`); older ones and safetensors checkpoints store keys and values of a head as
rows of one matrix. Plain formats keep their format; of a quantised one the transposed matrix is held as float16.
"""

from __future__ import annotations

import numpy as np

from engine.backends.ggml.attention_spec import KeyRows
from engine.backends.ggml.compute import Compute, Scratch
from engine.backends.ggml.graph import GraphBuilder
from engine.backends.ggml.library import Ggml
from engine.backends.ggml.memory import Memory, values
from engine.backends.ggml.tensor_types import BF16, F32, I32


def write_transposed(
    ggml: Ggml, compute: Compute, scratch: Scratch, keys: KeyRows, joint_at: int, held: np.ndarray
) -> None:
    """`joint_at`: where the joint matrix lies in memory; `held`: uint8, the bytes to write. Raises MemoryError."""
    plain_dim, rank, num_heads = keys.held.shape
    per_head = keys.joint.shape[1] // num_heads
    memory = Memory(4 * plain_dim * (rank + 1) + 4096)
    rows_at, raw = memory.take(4 * plain_dim * rank)
    rows = values(raw, np.float32, plain_dim, rank)
    ids_at, raw = memory.take(4 * plain_dim)
    ids = values(raw, np.int32, plain_dim)
    builder = GraphBuilder(ggml, 8, 1, 8)
    try:
        joint = builder.new_at(joint_at, keys.joint.type_id, *keys.joint.shape)
        read = builder.read_rows(joint, builder.new_at(ids_at, I32, plain_dim))
        graph = builder.graph(builder.placed(read, rows_at))
        scratch.allocate(graph)
        out = held.reshape(num_heads, -1)
        for head in range(num_heads):
            ids[:] = range(head * per_head, head * per_head + plain_dim)
            compute.run(graph)
            out[head] = _stored(np.ascontiguousarray(rows.T), keys.held.type_id)
    finally:
        builder.close()


def _stored(matrix: np.ndarray, type_id: int) -> np.ndarray:
    """float32 values in a plain format, as bytes. For BF16 the values must be its own."""
    if type_id == BF16:
        return (matrix.view(np.uint32) >> 16).astype(np.uint16).reshape(-1).view(np.uint8)
    return matrix.astype(np.float32 if type_id == F32 else np.float16).reshape(-1).view(np.uint8)
