"""Replaying a trace's file: what is said, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from engine.commands.replay_trace import ReplayRequest, replay_trace
from engine.errors import ConfigError, UnusableFileError
from engine.profiles.store import ProfileStore
from offload.geometry import Geometry, LayerGeometry
from offload.policies.eviction import make_eviction
from offload.policies.eviction.history import HistoryWeights
from offload.policies.eviction.tuned_weights import Evidence, TunedWeights
from offload.replay.replay import replay
from offload.replay.trace import NO_EXPERT, RoutingTrace

GEOMETRY = Geometry((LayerGeometry(1, 8, 2, 64), LayerGeometry(2, 8, 2, 64)))
MODEL = "0123456789abcdef" * 2


def never_told(stage: str, done: int, total: int) -> None:
    pass


def make_trace(
    num_steps: int = 40, num_prompt_tok: int = 8, model: str = MODEL, is_predicted: bool = True
) -> RoutingTrace:
    random = np.random.default_rng(0)
    ids = np.array([[random.permutation(8)[:2] for _ in range(2)] for _ in range(num_steps)], np.uint16)
    predicted = ids.copy()
    predicted[:, 0] = NO_EXPERT
    if not is_predicted:
        predicted[:] = NO_EXPERT
    is_prefill = np.arange(num_steps) < num_prompt_tok
    return RoutingTrace(model, "maths", GEOMETRY, ids, predicted, None, is_prefill, np.zeros(1, np.int64))


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MOE_CHAT_HOME", str(tmp_path))
    make_trace().save(tmp_path / "maths.npz")
    return tmp_path / "maths.npz"


def test_loads_hit_rates_and_bounds_by_policy_and_layer(path: Path) -> None:
    outcome = replay_trace(ReplayRequest(path, num_slots=3), never_told)
    report, text = outcome.report, "\n".join(outcome.lines)
    policies = report["policies"]
    assert isinstance(policies, dict)
    assert list(policies) == ["history", "lru", "lfu", "belady"]
    lru = replay(make_trace(), make_eviction("lru", GEOMETRY), (3, 3))
    assert policies["lru"]["total"]["loads"] == lru.loads
    assert [layer["hit_rate"] for layer in policies["lru"]["layers"]] == [layer.hit_rate for layer in lru.layers]
    assert report["slots_per_layer"] == [3, 3]
    assert f"lru {lru.loads:>32}" in text
    assert report["belady_pool_loads"] <= sum(report["belady_layer_loads"]) <= policies["belady"]["total"]["loads"]  # type: ignore[operator, call-overload]
    assert "maths, 1 prompts, 32 tokens written" in text
    rows = [line.split() for line in outcome.lines[-2:]]
    assert [row[:2] for row in rows] == [["1", "3"], ["2", "3"]], "layers by their number in the model"
    assert [row[-1] for row in rows] == ["–", "100.0%"], "recall: the first layer is never predicted"


def test_predictions_are_replayed_as_prefetches(path: Path) -> None:
    prefetch = replay_trace(ReplayRequest(path, residency=0.5, prefetch_depth=2, hidden_copies=2), never_told)
    found = prefetch.report["prefetch"]
    assert isinstance(found, dict)
    assert found["recall_per_layer"] == [None, 1.0]
    assert found["policies"]["lru"]["total"]["prefetch_useful"] > 0
    none = replay_trace(ReplayRequest(path, prefetch_depth=0), never_told)
    assert not any("cancelled" in line for line in none.lines)
    make_trace(is_predicted=False).save(path)
    without = replay_trace(ReplayRequest(path), never_told)
    assert without.report["prefetch"] is None
    assert any("No predictions were recorded" in line for line in without.lines)


def test_a_quarter_of_the_experts_by_default_and_never_more_slots_than_experts(path: Path) -> None:
    assert replay_trace(ReplayRequest(path), never_told).report["slots_per_layer"] == [2, 2]
    whole = replay_trace(ReplayRequest(path, num_slots=99), never_told)
    assert whole.report["slots_per_layer"] == [8, 8]
    assert whole.report["belady_pool_loads"] == 16


def test_the_models_tuned_weights_are_among_the_policies(path: Path) -> None:
    with pytest.raises(ConfigError, match="No weights were tuned"):
        replay_trace(ReplayRequest(path, policies=("tuned",)), never_told)
    weights = HistoryWeights(count=0.0, ema=0.0, score=0.0, recency=1.0)
    store = ProfileStore(MODEL)
    store.save_weights(TunedWeights(MODEL, 0.0, weights, (3, 3), Evidence(1, 2, 1), Evidence(1, 2, 1)))
    request = ReplayRequest(path, num_slots=3)
    policies = replay_trace(request, never_told).report["policies"]
    assert isinstance(policies, dict)
    assert policies["tuned"] == policies["lru"], "recency alone is lru"
    store.weights_path.write_text("{}")
    found = replay_trace(request, never_told).report["policies"]
    assert "tuned" not in found  # type: ignore[operator]
    with pytest.raises(UnusableFileError, match="holds no moe-chat eviction weights"):
        replay_trace(ReplayRequest(path, policies=("tuned", "lru")), never_told)


def test_a_trace_cannot_name_a_folder_elsewhere(path: Path, tmp_path: Path) -> None:
    stranger = TunedWeights("../x", 0.0, HistoryWeights(), (3, 3), Evidence(1, 2, 1), Evidence(1, 2, 1))
    stranger.save(tmp_path / "data" / "x" / "eviction.json")
    make_trace(model="../x").save(path)
    found = replay_trace(ReplayRequest(path), never_told).report["policies"]
    assert "tuned" not in found  # type: ignore[operator]


def test_what_cannot_be_replayed_is_refused_with_what_to_do(path: Path, tmp_path: Path) -> None:
    whole = path.read_bytes()
    for name, content in {"cut": whole[:-200], "empty": b"", "text": b"hello"}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UnusableFileError, match=f"{name} is damaged") as refusal:
            replay_trace(ReplayRequest(tmp_path / name), never_told)
        assert "trace record" in refusal.value.hint
    with pytest.raises(UnusableFileError, match="cannot be read"):
        replay_trace(ReplayRequest(tmp_path / "none"), never_told)
    make_trace(num_prompt_tok=40).save(path)
    with pytest.raises(UnusableFileError, match="nothing is decoded"):
        replay_trace(ReplayRequest(path), never_told)
    make_trace().save(path)
    with pytest.raises(ConfigError, match="cannot hold a step") as too_few:
        replay_trace(ReplayRequest(path, num_slots=1), never_told)
    assert "--slots 2" in too_few.value.hint


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_slots": 3, "residency": 0.5}, "contradict"),
        ({"policies": ("lru", "fifo")}, "'fifo'"),
        ({"prefetch_depth": -1}, "not negative"),
    ],
)
def test_contradictory_requests(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ReplayRequest(Path("x"), **options)  # type: ignore[arg-type]


def test_no_torch_is_loaded() -> None:
    code = "import sys, engine.commands.replay_trace; sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    root = Path(__file__).parents[4]
    assert subprocess.run([sys.executable, "-P", "-c", code], cwd=root, env={"PYTHONPATH": str(root)}).returncode == 0
