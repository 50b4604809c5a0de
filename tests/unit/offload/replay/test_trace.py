"""Recorded routing: writing it down, keeping it, refusing what is not it."""

import time
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.errors import TraceError
from offload.geometry import Geometry, LayerGeometry
from offload.replay.trace import NO_EXPERT, RoutingTrace, concatenate, load_trace
from offload.replay.trace_writer import TraceWriter

GEOMETRY = Geometry((LayerGeometry(1, 4, 2, 64), LayerGeometry(3, 6, 3, 96)))


def recorded(num_prompts=2, model="m", domain="maths", has_scores=True) -> RoutingTrace:
    """Per prompt: 3 tokens of prompt and 2 of decode."""
    writer = TraceWriter(model, domain, GEOMETRY, has_scores=has_scores)
    for _ in range(num_prompts):
        writer.begin_prompt()
        writer.begin(3, is_prefill=True)
        writer.record(0, np.array([[0, 1], [2, 3], [1, 0]]), np.arange(12.0).reshape(3, 4))
        writer.record(1, np.array([[0, 1, 5], [2, 3, 4], [1, 0, 3]]), np.zeros((3, 6)))
        for step in range(2):
            writer.begin()
            writer.record(0, [step, 3], np.array([0.5, -1.0, 2.0, np.inf], dtype=np.float32))
            writer.record(1, [5, 0, step + 1], np.arange(6.0), predicted=[5, 1])
    return writer.trace()


def same(one, other):
    assert (one.model, one.domain, one.geometry) == (other.model, other.domain, other.geometry)
    for name in ("ids", "predicted", "scores", "is_prefill", "prompt_starts"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_what_is_recorded_is_there():
    trace = recorded()
    assert (trace.num_steps, trace.num_prompts) == (10, 2)
    assert trace.ids[3].tolist() == [[0, 3, NO_EXPERT], [5, 0, 1]]
    assert trace.ids[1].tolist() == [[2, 3, NO_EXPERT], [2, 3, 4]]
    assert trace.predicted[3].tolist() == [[NO_EXPERT] * 3, [5, 1, NO_EXPERT]]
    assert trace.scores[3, 0, :4].tolist() == [0.5, -1.0, 2.0, np.inf]
    assert np.isnan(trace.scores[3, 0, 4:]).all(), "layer 0 has 4 experts"
    assert trace.is_prefill.tolist() == [True, True, True, False, False] * 2
    assert trace.prompt_starts.tolist() == [0, 5]
    assert trace.experts_by_step(0)[3:5] == [[0, 3], [1, 3]]
    assert trace.predicted_by_step(1)[2:4] == [[], [5, 1]]
    assert trace.selection_mask()[3, 0].tolist() == [True, False, False, True, False, False]


def test_decode_steps_alone():
    trace = recorded().decode_only()
    assert trace.ids[:, 0, 0].tolist() == [0, 1, 0, 1]
    assert trace.prompt_starts.tolist() == [0, 2]
    assert not trace.is_prefill.any()
    assert trace.decode_only() is trace


def test_some_prompts_alone():
    trace = recorded(num_prompts=4)
    some = trace.with_prompts([1, 3])
    assert (some.num_prompts, some.num_steps, some.prompt_starts.tolist()) == (2, 10, [0, 5])
    np.testing.assert_array_equal(some.ids[5:], trace.ids[15:])
    np.testing.assert_array_equal(some.scores[:5], trace.scores[5:10])
    assert trace.with_prompts([]).num_steps == 0
    same(trace.with_prompts(range(4)), trace)
    assert some.decode_only().prompt_starts.tolist() == [0, 2]


def test_a_forward_given_up_leaves_no_trace():
    writer = TraceWriter("m", "", GEOMETRY)
    writer.begin(2)
    writer.record(0, np.array([[0, 1], [2, 3]]), predicted=np.array([[0, 1], [2, 3]]))
    writer.begin()
    writer.record(0, [3])
    writer.record(1, [4, 5, 0])
    trace = writer.trace()
    assert trace.ids.tolist() == [[[3, NO_EXPERT, NO_EXPERT], [4, 5, 0]]]
    assert (trace.predicted == NO_EXPERT).all()
    assert np.isnan(trace.scores).all()


def test_it_grows():
    writer = TraceWriter("m", "", GEOMETRY, has_scores=False)
    for step in range(1000):
        writer.begin()
        writer.record(0, [step % 4])
        writer.record(1, [step % 6], np.zeros(6))
    trace = writer.trace()
    assert trace.ids[:, 0, 0].tolist() == [step % 4 for step in range(1000)]
    assert trace.scores is None
    assert writer.num_steps == 1000


def test_an_expert_the_model_does_not_have_is_refused():
    writer = TraceWriter("m", "", GEOMETRY)
    writer.begin()
    writer.record(0, [4])
    writer.record(1, [0])
    with pytest.raises(TraceError, match="does not have"):
        writer.trace()


def test_a_mask_of_the_lowest_float_is_minus_infinity():
    writer = TraceWriter("m", "", GEOMETRY)
    writer.begin()
    writer.record(0, [1], np.full(4, np.finfo(np.float32).min, np.float32))
    writer.record(1, [2])
    assert (writer.trace().scores[0, 0, :4] == -np.inf).all()


@pytest.mark.parametrize("has_scores", [True, False])
def test_saved_and_loaded(tmp_path, has_scores):
    trace = recorded(has_scores=has_scores)
    trace.save(tmp_path / "deep" / "one.npz")
    same(load_trace(tmp_path / "deep" / "one.npz"), trace)
    assert [file.name for file in (tmp_path / "deep").iterdir()] == ["one.npz"]


def test_concatenated():
    one = recorded(1)
    same(concatenate([one, one]), recorded(2))
    assert concatenate([one, recorded(domain="code")]).domain == ""
    assert concatenate([one, recorded(has_scores=False)]).scores is None
    with pytest.raises(TraceError, match="different models"):
        concatenate([one, recorded(model="other")])
    with pytest.raises(TraceError, match="no routing trace"):
        concatenate([])


def test_what_is_no_trace_is_refused(tmp_path):
    path = tmp_path / "it.npz"
    with pytest.raises(TraceError, match="cannot be read: No such file"):
        load_trace(path)
    path.write_bytes(b"")
    with pytest.raises(TraceError, match="damaged"):
        load_trace(path)
    np.savez(path, something=np.zeros(3))
    with pytest.raises(TraceError, match="damaged, or no moe-chat routing trace"):
        load_trace(path)
    np.savez(path, header=np.frombuffer(b'{"format": "a recipe", "version": 1}', np.uint8))
    with pytest.raises(TraceError, match="a recipe"):
        load_trace(path)
    np.savez(path, header=np.frombuffer(b'{"format": "moe-chat routing trace", "version": 7}', np.uint8))
    with pytest.raises(TraceError, match="version 7"):
        load_trace(path)
    np.savez(path, header=np.frombuffer(b'{"format": "moe-chat routing trace", "version": 1}', np.uint8))
    with pytest.raises(TraceError, match="damaged"):
        load_trace(path)
    np.save(path.with_suffix(".npy"), np.zeros(3))
    with pytest.raises(TraceError, match="damaged"):
        load_trace(path.with_suffix(".npy"))


def test_a_pickle_is_not_opened(tmp_path):
    path = tmp_path / "it.npz"
    np.savez(path, header=np.array([{"format": "moe-chat routing trace"}], dtype=object))
    with pytest.raises(TraceError, match="damaged"):
        load_trace(path)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_damaged_file_is_refused_or_read_but_never_crashes(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("t") / "it.npz"
    recorded().save(path)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        for _ in range(data.draw(st.integers(1, 4))):
            content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    with suppress(TraceError):
        load_trace(path)


def test_recording_a_layer_costs_microseconds():
    geometry = Geometry(tuple(LayerGeometry(i, 128, 8, 64) for i in range(48)))
    writer = TraceWriter("m", "", geometry)
    scores, ids = np.zeros(128, np.float32), list(range(8))
    best_s = 1.0
    for _ in range(20):
        writer.begin()
        start_s = time.perf_counter()
        for layer in range(48):
            writer.record(layer, ids, scores, ids)
        best_s = min(best_s, time.perf_counter() - start_s)
    assert best_s / 48 < 50e-6, "3 to 9 on the machine it was written on"


def test_one_token_may_come_with_its_first_dimension():
    """The last chunk of a prompt can be one token, which a layer passes on as it got it."""
    writer = TraceWriter("m", "maths", GEOMETRY)
    writer.begin_prompt()
    writer.begin(1, is_prefill=True)
    writer.record(0, np.array([[2, 1]]), np.arange(4.0).reshape(1, 4), predicted=np.array([[3, 0]]))
    writer.record(1, np.array([[5, 0, 1]]), np.arange(6.0).reshape(1, 6))
    trace = writer.trace()
    assert trace.experts_by_step(0) == [[2, 1]]
    assert trace.experts_by_step(1) == [[5, 0, 1]]
    assert trace.predicted_by_step(0) == [[3, 0]]


def test_an_expert_named_twice_for_a_token_is_recorded_once():
    writer = TraceWriter("m", "d", Geometry((LayerGeometry(0, 8, 3, 64),)))
    writer.begin_prompt()
    writer.begin(2, is_prefill=True)
    writer.record(0, np.array([[5, 5, 1], [2, 3, 4]]))
    writer.begin()
    writer.record(0, [6, 2, 6])
    assert writer.trace().experts_by_step(0) == [[5, 1], [2, 3, 4], [6, 2]]
