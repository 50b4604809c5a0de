"""The predictor of selections: folded it says what the network says, it learns what there is to learn, files are
checked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from engine.profiles import predictor_training
from engine.profiles.predictor_store import PredictorStore, accuracy_in_words
from engine.profiles.predictor_training import TrainingRules, train_predictor
from offload.errors import ProfileError, WaitCancelled
from offload.geometry import Geometry, LayerGeometry
from offload.policies.forecast.selection_predictor import SelectionScorer
from offload.policies.forecast.selections import SelectionForecaster
from offload.policies.inputs import PolicyInputs
from offload.replay.selection_statistics import accuracy_of
from offload.replay.trace import RoutingTrace

GEOMETRY = Geometry(tuple(LayerGeometry(i, 8, 2, 64) for i in range(4)))


def ignore(stage: str, done: int, total: int) -> None:
    pass


def regular_trace(num_prompts: int = 10, steps: int = 30) -> RoutingTrace:
    """Each layer's selection follows from the one before: expert e is followed by e + 1."""
    chance = np.random.default_rng(3)
    first = chance.integers(0, 4, num_prompts * steps)
    pairs = np.stack([first, first + 4], axis=1)
    ids = np.stack([(pairs + layer) % 8 for layer in range(4)], axis=1).astype(np.uint16)
    starts = np.arange(0, num_prompts * steps, steps)
    return RoutingTrace(
        "m", "maths", GEOMETRY, ids, ids.copy(), None, np.zeros(len(ids), bool), starts.astype(np.int64)
    )


@pytest.fixture
def few_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictor_training, "_MAX_EPOCHS", 12)
    monkeypatch.setattr(predictor_training, "WIDTHS", (64, 32))


@pytest.mark.usefixtures("few_epochs")
def test_it_learns_and_a_file_gives_the_same_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOE_CHAT_HOME", str(tmp_path))
    trained = train_predictor(regular_trace(), TrainingRules(), ignore, lambda: False)
    assert (trained.num_trained_on, trained.num_held_out) == (8, 2)
    assert trained.accuracy.exact_rate is not None
    assert trained.accuracy.exact_rate > 0.9
    assert "on 2 held-out prompts" in accuracy_in_words(trained)
    store = PredictorStore("m", GEOMETRY)
    store.save("maths", trained)
    kept = store.best_for("code")
    assert kept is not None
    assert kept.domain == "maths"
    assert accuracy_of(kept.predictor, regular_trace()) == accuracy_of(trained.predictor, regular_trace())
    forecaster = SelectionForecaster(GEOMETRY, kept.predictor)
    forecaster.begin_iteration(is_decode=True)
    forecaster.routed(0, [1, 5], [1, 1])
    assert sorted(forecaster.predict(0, 1)) == [2, 6]
    for other in (PredictorStore("n", GEOMETRY), PredictorStore("m", Geometry(GEOMETRY.layers[:3]))):
        other._folder = store._folder
        with pytest.raises(ProfileError):
            other.load("maths")
        assert other.best_for("maths") is None
    arrays = load_file(store.path("maths"))
    save_file({**arrays, "bias.0": arrays["bias.0"] * np.float32(np.nan)}, store.path("maths"), {"format": "x"})
    assert store.best_for("maths") is None
    store.path("maths").write_bytes(b"not one")
    assert store.best_for("maths") is None


@pytest.mark.usefixtures("few_epochs")
def test_folded_it_says_what_the_network_says() -> None:
    torch.manual_seed(0)
    popularity = np.random.default_rng(0).random((4, 8)).astype(np.float32)
    affinity = np.random.default_rng(1).random((4, 8, 8)).astype(np.float32)
    network = predictor_training._Network(popularity, affinity, 64)
    ids = torch.from_numpy(regular_trace(1).ids.astype(np.int64))
    for _ in range(3):
        network.train()
        network(ids)
    network.eval()
    predictor = network.folded()
    with torch.no_grad():
        expected = network(ids[:1]).numpy()
    scorer = SelectionScorer(predictor)
    for _ in range(2):  # a token leaves nothing for the next
        scorer.begin()
        for layer in range(1, 4):
            scorer.add(layer - 1, ids[0, layer - 1].tolist())
            assert scorer.scores() == pytest.approx(expected[layer - 1], abs=1e-4)


def test_too_little_and_a_stop_are_told() -> None:
    with pytest.raises(ProfileError, match="two prompts"):
        train_predictor(regular_trace(1), TrainingRules(), ignore, lambda: False)
    with pytest.raises(WaitCancelled):
        train_predictor(regular_trace(4), TrainingRules(), ignore, lambda: True)


def test_without_a_predictor_it_counts_what_follows_what() -> None:
    forecaster = SelectionForecaster(GEOMETRY, PolicyInputs(GEOMETRY).predictor)
    for selected in regular_trace(1).ids[:20].tolist():
        forecaster.begin_iteration(is_decode=True)
        for layer, experts in enumerate(selected):
            forecaster.routed(layer, experts, (1, 1))
    forecaster.begin_iteration(is_decode=True)
    forecaster.routed(0, [1, 5], (1, 1))
    assert sorted(forecaster.predict(0, 1)) == [2, 6]
    assert forecaster.can_predict(0, 1)
    assert not forecaster.can_predict(3, 0)
