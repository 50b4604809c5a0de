"""Run as a program, in a process of its own: loads ggml and computes one product of every format, attention, and a
delta rule, compared with numpy.

Ends with 0, or with 1 and the reason; an abort of the library ends it too.
"""

from __future__ import annotations

import sys

import numpy as np

from engine.backends.ggml.compute import Compute, Scratch
from engine.backends.ggml.graph import GraphBuilder
from engine.backends.ggml.library import Ggml, load_library
from engine.backends.ggml.memory import Memory, values
from engine.backends.ggml.self_test_attention import attention_problem
from engine.backends.ggml.self_test_delta import delta_problem
from engine.backends.ggml.tensor_types import BF16, F16, F32, I32

_NUM_IN, _NUM_OUT = 512, 32
_QUANTIZED = {2: "q4_0", 8: "q8_0", 12: "q4_K", 14: "q6_K"}
"""Tried from float32 and back; all other formats come from the same tables."""
_MAX_ERROR = {F32: 1e-5, F16: 2e-3, BF16: 2e-2, 8: 2e-2, 14: 4e-2, 2: 0.15, 12: 0.15}


def self_test() -> str:
    """What is wrong; empty: nothing."""
    ggml = load_library()
    compute, scratch = Compute(ggml), Scratch(ggml)
    for type_id, largest in _MAX_ERROR.items():
        name = ggml.type_name(type_id).decode()
        if type_id in _QUANTIZED and name != _QUANTIZED[type_id]:
            return f"format {type_id} is {name}, not {_QUANTIZED[type_id]}"
        error = _product_error(ggml, compute, scratch, type_id)
        if not error <= largest:
            return f"a product of {name} is wrong by {error:.3g}"
    return attention_problem(ggml, compute, scratch) or delta_problem(ggml, compute, scratch)


def _product_error(ggml: Ggml, compute: Compute, scratch: Scratch, type_id: int) -> float:
    """Relative error of `mul_mat_id`, one of two stored matrices, against float64."""
    random = np.random.default_rng(type_id)
    weight = random.standard_normal((2, _NUM_OUT, _NUM_IN)).astype(np.float32)
    row = random.standard_normal(_NUM_IN).astype(np.float32)
    builder = GraphBuilder(ggml, 8, 1, 8)
    matrix_bytes = builder.row_bytes(type_id, _NUM_IN) * _NUM_OUT
    memory = Memory(2 * matrix_bytes + 65536)
    weight_at, raw = memory.take(2 * matrix_bytes)
    ggml.quantize_chunk(type_id, weight.ctypes.data, raw.ctypes.data, 0, 2 * _NUM_OUT, _NUM_IN, None)
    row_at, raw = memory.take(row.nbytes)
    raw.view(np.float32)[:] = row
    ids_at, raw = memory.take(4)
    raw.view(np.int32)[:] = 1
    out_at, out = memory.take(4 * _NUM_OUT)
    product = builder.product_by_id(
        builder.strided(weight_at, type_id, (_NUM_IN, _NUM_OUT), 2, matrix_bytes),
        builder.new_at(row_at, F32, _NUM_IN, 1, 1),
        builder.new_at(ids_at, I32, 1, 1),
    )
    graph = builder.graph(builder.placed(product, out_at))
    scratch.allocate(graph)
    compute.run(graph)
    expected = weight[1].astype(np.float64) @ row
    builder.close()
    return float(np.linalg.norm(values(out, np.float32, _NUM_OUT) - expected) / np.linalg.norm(expected))


if __name__ == "__main__":
    problem = self_test()
    if problem:
        print(problem)
    sys.exit(1 if problem else 0)
