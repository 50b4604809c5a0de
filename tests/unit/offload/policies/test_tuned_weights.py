"""Tuned weights in a file, and the truth about them."""

import json

import numpy as np
import pytest

from offload.errors import TraceError, WeightsError
from offload.geometry import Geometry, LayerGeometry
from offload.policies.eviction import make_eviction
from offload.policies.eviction.history import HistoryEviction, HistoryWeights
from offload.policies.eviction.tuned_weights import Evidence, TunedWeights, load_tuned_weights
from offload.replay.held_out import PolicyLoads, tune_and_check
from offload.replay.replay import replay
from offload.replay.trace import RoutingTrace
from offload.replay.tuning import tune_history

TUNED = TunedWeights(
    "abc", 1.5e9, HistoryWeights(count=0.25, window_steps=16), (4, 3), Evidence(8, 1000, 900), Evidence(4, 500, 480)
)


@pytest.fixture
def path(tmp_path):
    TUNED.save(tmp_path / "models" / "eviction.json")
    return tmp_path / "models" / "eviction.json"


def test_what_is_kept_is_there(path):
    assert load_tuned_weights(path, ("abc",)) == TUNED
    assert TUNED.held_out.saved_rate == pytest.approx(0.04)
    assert [entry.name for entry in path.parent.iterdir()] == ["eviction.json"]


def changed(path, *keys, to):
    found = json.loads(path.read_text())
    at = found
    for key in keys[:-1]:
        at = at[key]
    at[keys[-1]] = to
    path.write_text(json.dumps(found))


@pytest.mark.parametrize(
    ("keys", "to", "words"),
    [
        (("weights", "count"), -1.0, "must not be negative"),
        (("weights", "count"), True, "count is True"),
        (("weights", "ema"), float("nan"), "holds NaN"),
        (("weights", "ema"), 1e300, "ema is"),
        (("weights", "window_steps"), 2.5, "window_steps is 2.5"),
        (("weights", "window_steps"), 0, "impossible history"),
        (("weights", "luck"), 1.0, "luck"),
        (("weights",), [1, 2], "damaged"),
        (("weights",), {}, "damaged: it lacks 'window_steps'"),
        (("slots_per_layer",), 3, "damaged"),
        (("tuned_on", "loads"), "many", "loads is 'many'"),
        (("held_out",), None, "damaged"),
        (("created_s",), None, "created_s is None"),
        (("model",), "xyz", "another model"),
        (("version",), 2, "version 2"),
        (("format",), "moe-chat domain profile", "no moe-chat eviction weights"),
    ],
)
def test_what_is_damaged_or_foreign_is_refused_with_what_to_do(path, keys, to, words):
    changed(path, *keys, to=to)
    with pytest.raises(WeightsError, match=words) as refusal:
        load_tuned_weights(path, ("abc",))
    assert "moe-chat tune --reset" in refusal.value.hint


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[1]", b"{", b"[" * 100_000, b"null"])
def test_what_is_something_else_is_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(WeightsError):
        load_tuned_weights(path, ("abc",))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(WeightsError, match="cannot be read"):
        load_tuned_weights(tmp_path / "none.json", ("abc",))


# ---- held out


GEOMETRY = Geometry(tuple(LayerGeometry(i, 8, 2, 64) for i in range(2)))
SLOTS = (4, 3)


def make_trace(domain, seed, num_prompts, steps_per_prompt=30):
    random = np.random.default_rng(seed)
    num_steps = num_prompts * steps_per_prompt
    scores = random.normal(size=(num_steps, 2, 8)).cumsum(axis=0)
    ids = np.argsort(-scores, axis=2)[:, :, :2].astype(np.uint16)
    is_prefill = np.arange(num_steps) % steps_per_prompt < 5
    starts = np.arange(num_prompts) * steps_per_prompt
    blank = np.full_like(ids, 0xFFFF)
    return RoutingTrace("m", domain, GEOMETRY, ids, blank, scores.astype(np.float16), is_prefill, starts)


def test_a_third_of_the_prompts_is_held_out_and_never_searched_on():
    traces = [make_trace("maths", 0, 6), make_trace("code", 1, 4)]
    checked = tune_and_check(traces, SLOTS, num_random=10, num_rounds=1)
    assert (checked.num_tuned_on, checked.num_held_out) == (7, 3)
    seen = [traces[0].with_prompts([0, 1, 3, 4]), traces[1].with_prompts([0, 1, 3])]
    searched = tune_history(seen, SLOTS, num_random=10, num_rounds=1)
    assert checked.weights == searched.best
    assert checked.tuned_on.tuned == searched.loads
    assert checked.tuned_on_evidence == Evidence(7, searched.default_loads, searched.loads)
    unseen = {"maths": traces[0].with_prompts([2, 5]), "code": traces[1].with_prompts([2])}
    for domain, trace in unseen.items():
        loads = checked.held_out_by_domain[domain]
        assert loads.tuned == replay(trace, HistoryEviction(GEOMETRY, checked.weights), SLOTS).loads
        assert loads.default == replay(trace, make_eviction("history", GEOMETRY), SLOTS).loads
        assert loads.belady_pool <= loads.belady_layer <= min(loads[:4])
    assert checked.held_out == PolicyLoads(*map(sum, zip(*checked.held_out_by_domain.values(), strict=True)))


@pytest.mark.parametrize("num_prompts", [[], [1], [2, 2]])
def test_too_few_prompts_to_hold_one_out(num_prompts):
    with pytest.raises(TraceError, match="too few") as refusal:
        tune_and_check([make_trace("", seed, count) for seed, count in enumerate(num_prompts)], SLOTS)
    assert refusal.value.hint


def test_stopped_in_the_search():
    def stop(stage, done, total):
        raise KeyboardInterrupt(stage)

    with pytest.raises(KeyboardInterrupt, match="searching weights"):
        tune_and_check([make_trace("", 0, 3)], SLOTS, on_progress=stop)
