"""What is kept of a model: whatever lies under its names, the answer is one of our own errors."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from engine.errors import ConfigError
from engine.profiles.past_requests import PastRequests
from engine.profiles.predictor_store import PredictorStore
from engine.profiles.prompt_sets import read_prompts
from engine.profiles.store import ProfileStore
from engine.profiles.tuned_eviction import tuned_eviction
from offload.errors import ProfileError, WeightsError
from offload.geometry import Geometry, LayerGeometry

GEOMETRY = Geometry(tuple(LayerGeometry(i, 4, 2, 64) for i in range(2)))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProfileStore:
    monkeypatch.setenv("MOE_CHAT_HOME", str(tmp_path))
    store = ProfileStore("f" * 32)
    store.weights_path.parent.mkdir(parents=True)
    return store


def test_a_fifo_is_not_waited_for(store: ProfileStore, tmp_path: Path) -> None:
    for path in (store.path("maths"), store.weights_path, tmp_path / "prompts.jsonl"):
        os.mkfifo(path)
    with pytest.raises(ProfileError, match=r"maths\.npz cannot be read: it is a FIFO"):
        store.load("maths")
    assert store.usable("maths") is None
    with pytest.raises(WeightsError, match=r"eviction\.json cannot be read: it is a FIFO"):
        store.load_weights()
    assert "FIFO" in tuned_eviction("f" * 32).problem
    with pytest.raises(ConfigError, match=r"prompts\.jsonl cannot be read: it is a FIFO") as caught:
        read_prompts(tmp_path / "prompts.jsonl", None)
    assert caught.value.hint


def test_prompts_of_a_device_are_refused() -> None:
    with pytest.raises(ConfigError, match="it is a device"):
        read_prompts(Path("/dev/zero"), None)


def test_a_line_without_end_is_not_read_to_it(tmp_path: Path) -> None:
    with (tmp_path / "prompts.txt").open("wb") as file:
        file.truncate(20 << 30)
    with pytest.raises(ConfigError, match="line 1: it is longer than"):
        read_prompts(tmp_path / "prompts.txt", None)


def test_what_cannot_be_deleted(store: ProfileStore) -> None:
    store.path("maths").mkdir()
    store.weights_path.mkdir()
    with pytest.raises(ProfileError, match=r"maths\.npz cannot be deleted"):
        store.delete("maths")
    with pytest.raises(WeightsError, match=r"eviction\.json cannot be deleted"):
        store.delete_weights()


def test_what_is_deleted(store: ProfileStore) -> None:
    assert not store.delete_weights()
    store.weights_path.write_text("{}")
    store.path("maths").touch()
    assert store.delete_weights()
    store.delete("maths")
    assert store.names() == []
    with pytest.raises(ConfigError, match="no profile 'maths'"):
        store.delete("maths")


def test_past_requests_that_cannot_be_used_are_told_and_kept_beside(store: ProfileStore) -> None:
    kept = PastRequests(store.fingerprint, GEOMETRY)
    kept.path.write_bytes(b"of a later version")
    kept.collection.add(np.ones((2, 4), np.int64))
    assert "activations.requests is damaged" in kept.problem
    kept.save()
    assert kept.path.with_suffix(".requests.unusable").read_bytes() == b"of a later version"
    other_bytes = Geometry(tuple(LayerGeometry(i, 4, 2, 640) for i in range(2)))
    again = PastRequests(store.fingerprint, other_bytes)
    assert (again.collection.size, again.problem) == (1, ""), "another back end stores experts in other bytes"


def test_a_predictor_that_cannot_be_used_is_told_and_takes_no_memory(store: ProfileStore) -> None:
    predictors = PredictorStore(store.fingerprint, GEOMETRY)
    assert (predictors.best_for("maths"), predictors.problem) == (None, "")
    with predictors.path("maths").open("wb") as file:
        file.truncate(20 << 30)
    os.mkfifo(predictors.path("code"))
    predictors.path("writing").symlink_to("nowhere")
    assert predictors.largest_bytes() == 0
    assert predictors.best_for("code") is None
    assert "it is a FIFO" in predictors.problem
    for domain in ("code", "maths", "writing"):
        with pytest.raises(ProfileError, match=domain) as caught:
            predictors.load(domain)
        assert "Train it again" in caught.value.hint
