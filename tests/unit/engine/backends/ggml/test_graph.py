"""Graphs: what ggml would end the process for is an error in Python, before the call."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from engine.backends.ggml.attention_spec import RopeSpec
from engine.backends.ggml.compute import Compute, Scratch, graph_bytes
from engine.backends.ggml.graph import GraphBuilder, ShapeError
from engine.backends.ggml.library import load_library
from engine.backends.ggml.memory import Memory, values
from engine.backends.ggml.tensor_types import F16, F32, I32, I64
from offload.errors import WaitCancelled

Q4_0, Q4_K = 2, 12


@pytest.fixture
def builder() -> Iterator[GraphBuilder]:
    made = GraphBuilder(load_library(), 64, 4, 64)
    yield made
    made.close()


def test_shapes_and_types_are_checked(builder: GraphBuilder) -> None:
    matrix, rows = builder.new(F32, 64, 8), builder.new(F32, 64, 3)
    heads, ids = builder.new(F32, 16, 4, 3), builder.new(I32, 2, 1)
    cached = builder.new(F16, 16, 1, 9)
    wrong = [
        lambda: builder.new(Q4_0, 33, 2),
        lambda: builder.new(Q4_K, 128, 2),
        lambda: builder.new(F32, 0),
        lambda: builder.new(99, 32),
        lambda: builder.product(matrix, builder.new(F32, 63, 3)),
        lambda: builder.product(matrix, builder.new(F16, 64, 3)),
        lambda: builder.product_by_id(builder.new(F32, 64, 8, 5), rows, ids),
        lambda: builder.product_by_id(builder.new(F32, 64, 8, 5), builder.new(F32, 64, 3, 1), ids),
        lambda: builder.mul(rows, builder.new(F32, 65)),
        lambda: builder.add(rows, builder.new(F16, 64, 3)),
        lambda: builder.rope(heads, builder.new(I32, 4), RopeSpec(16, 1e4)),
        lambda: builder.rope(heads, builder.new(I32, 3), RopeSpec(18, 1e4)),
        lambda: builder.rope(heads, builder.new(I32, 3), RopeSpec(16, 1e4, divisors=(1.0,) * 8)),
        lambda: builder.rope(heads, builder.new(I32, 3), RopeSpec(16, 1e4), builder.new(F32, 8)),
        lambda: builder.write_rows(builder.new(F16, 64, 9), rows, builder.new(I64, 4)),
        lambda: builder.write_rows(builder.new(F16, 64, 9), rows, builder.new(I32, 3)),
        lambda: builder.attention(heads, builder.new(F16, 16, 3, 9), builder.new(F16, 16, 3, 9), rows, 1.0),
        lambda: builder.attention(heads, cached, cached, builder.new(F16, 9, 3), 1.0, builder.new(F32, 3)),
        lambda: builder.attention(heads, cached, builder.new(F16, 16, 1, 8), builder.new(F16, 9, 3), 1.0),
        lambda: builder.reshape(rows, 5, 5),
        lambda: builder.reshape(builder.columns(rows, 0, 8), 24, 1),
        lambda: builder.columns(rows, 60, 5),
        lambda: builder.columns(builder.new(Q4_0, 64, 3), 16, 32),
        lambda: builder.last_rows_by_head(builder.new(F32, 64, 8), 3, 1),
        lambda: builder.product_by_head(builder.new(F32, 16, 5, 3), heads),
        lambda: builder.concat(rows, builder.new(F32, 64, 4)),
        lambda: builder.gated(rows, matrix),
        lambda: builder.descending(ids),
        lambda: builder.softmax(builder.new(F16, 64, 3)),
        lambda: builder.rows_of(builder.new(F16, 64, 9), 4, 0, 10),
        lambda: builder.strided(4096, F32, (8, 8), 2, 8 * 8 * 4 - 1),
        lambda: builder.row_sums(ids),
        lambda: builder.divided(rows, builder.new(F32, 1, 2)),
        lambda: builder.weighted_sum(rows, builder.new(F32, 4, 1)),
        lambda: builder.new_at(0, F32, 4),
    ]
    for make in wrong:
        with pytest.raises(ShapeError):
            make()


def test_a_product_is_what_numpy_says_and_lands_where_it_is_placed(builder: GraphBuilder) -> None:
    ggml = load_library()
    random = np.random.default_rng(0)
    weight, rows = (random.standard_normal(shape).astype(np.float32) for shape in ((8, 64), (3, 64)))
    memory = Memory(4096)
    out_at, raw = memory.take(4 * 24)
    product = builder.product(
        builder.new_at(weight.ctypes.data, F32, 64, 8), builder.new_at(rows.ctypes.data, F32, 64, 3)
    )
    graph = builder.graph(builder.placed(product, out_at))
    compute, scratch = Compute(ggml), Scratch(ggml)
    scratch.allocate(graph)
    compute.run(graph)
    assert np.allclose(values(raw, np.float32, 3, 8), rows @ weight.T, atol=1e-4)
    compute.close()
    scratch.close()


def test_an_order_is_by_value_and_a_softmax_adds_up_to_one(builder: GraphBuilder) -> None:
    ggml = load_library()
    logits = np.random.default_rng(1).standard_normal((2, 100)).astype(np.float32)
    memory = Memory(4096)
    order_at, order = memory.take(800)
    shares_at, shares = memory.take(800)
    rows = builder.new_at(logits.ctypes.data, F32, 100, 2)
    placed = builder.placed(builder.descending(rows), order_at), builder.placed(builder.softmax(rows), shares_at)
    graph, compute, scratch = builder.graph(*placed), Compute(ggml), Scratch(ggml)
    scratch.allocate(graph)
    compute.run(graph)
    assert np.array_equal(values(order, np.int32, 2, 100), np.argsort(-logits, axis=1))
    raised = np.exp(logits)
    assert np.allclose(values(shares, np.float32, 2, 100), raised / raised.sum(axis=1, keepdims=True), atol=1e-6)
    compute.close()
    scratch.close()


def test_a_graph_can_be_stopped() -> None:
    ggml = load_library()
    builder, data = GraphBuilder(ggml, 64, 1, 64), np.ones((64, 64), np.float32)
    total = builder.new_at(data.ctypes.data, F32, 64, 64)
    weight = total
    for _ in range(20):
        total = builder.product(weight, total)
    graph, compute, scratch = builder.graph(total), Compute(ggml), Scratch(ggml)
    assert graph_bytes(ggml, graph) > 0
    scratch.allocate(graph)
    with compute.stoppable(lambda: True), pytest.raises(WaitCancelled):
        compute.run(graph)
    compute.run(graph)
    for made in (builder, compute, scratch):
        made.close()
        made.close()


def test_memory_is_given_out_once() -> None:
    memory = Memory(256)
    first, view = memory.take(100)
    second, _ = memory.take(100)
    assert (first % 64, second - first, len(view)) == (0, 128, 100)
    with pytest.raises(MemoryError):
        memory.take(100)
