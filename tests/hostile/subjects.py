"""What is done with a damaged file, and the sound files that the campaign starts from."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine.api import Message, Submit
from engine.backends.transformers.config_and_tokenizer import load_tokenizer
from engine.checkpoint.catalogue import describe_folder
from engine.commands.plan_model import plan_model
from engine.config import SamplingConfig
from engine.errors import MoeChatError
from engine.events import Event, TurnEnded
from engine.process.session import Session
from engine.profiles.past_requests import PastRequests
from engine.profiles.predictor_store import PredictorStore, Trained
from engine.profiles.prompt_sets import read_prompts
from offload.errors import OffloadError, ProfileError
from offload.geometry import Geometry, LayerGeometry
from offload.policies.eviction.history import HistoryWeights
from offload.policies.eviction.tuned_weights import Evidence, TunedWeights, load_tuned_weights
from offload.policies.forecast.selection_predictor import SelectionPredictor
from offload.policies.forecast.selections import SelectionForecaster
from offload.replay.profile import build_profile, load_profile
from offload.replay.selection_statistics import Accuracy, selection_statistics
from offload.replay.trace import RoutingTrace, load_trace
from offload.replay.trace_writer import TraceWriter
from tests.architectures.tiny import save_checkpoint
from tests.unit.engine.commands.tiny_bench import config_of

TEMPLATE = "{% for m in messages %}w3 {{ m.content }} {% endfor %}{% if add_generation_prompt %}w4{% endif %}"
_MODEL = "hostile"
_GEOMETRY = Geometry(tuple(LayerGeometry(number, 8, 2, 64) for number in range(3)))


class Outcome(NamedTuple):
    """How it ended. `kind` is `answered`, `refused` or `wrong`."""

    kind: str
    error: str = ""
    """The class of the exception."""
    message: str = ""
    hint: str = ""
    menu: str = ""
    """Why the menu says that the model cannot be run; empty: it says that it can."""


def make_bases(root: Path) -> None:
    """The folders `single`, `sharded` and `files` with sound files in them."""
    for name, shard_bytes in (("single", "50GB"), ("sharded", 100_000)):
        folder = save_checkpoint(root / name, "qwen3_moe", shard_bytes=shard_bytes)
        (folder / "chat_template.jinja").write_text(TEMPLATE)
        (folder / "special_tokens_map.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
        sampling = {"do_sample": True, "temperature": 0.7, "top_p": 0.9, "top_k": 20, "eos_token_id": [2, 1]}
        (folder / "generation_config.json").write_text(json.dumps(sampling))
    files = root / "files"
    files.mkdir()
    writer, random = TraceWriter(_MODEL, "maths", _GEOMETRY), np.random.default_rng(0)
    writer.begin_prompt()
    for _ in range(40):
        writer.begin()
        for layer in range(3):
            scores = random.random(8)
            writer.record(layer, np.argsort(-scores)[:2].tolist(), scores)
    trace = writer.trace()
    trace.save(files / "trace.npz")
    build_profile(trace, created_s=0.0).save(files / "profile.npz")
    evidence = Evidence(3, 100, 90)
    TunedWeights(_MODEL, 0.0, HistoryWeights(), (3, 3, 3), evidence, evidence).save(files / "eviction.json")
    past = PastRequests(_MODEL, _GEOMETRY)
    past.path = files / "activations.requests"
    past.collection.add(trace.selection_mask().sum(axis=0).astype(np.int64))
    past.save()
    store = PredictorStore(_MODEL, _GEOMETRY)
    store._folder = files
    store.save("maths", Trained(_predictor(trace), Accuracy(9, 5, 8), 2, 1))
    (files / "prompts.jsonl").write_text('{"question": "Which?", "choices": ["a", "b"], "id": 7}')


def _predictor(trace: RoutingTrace) -> SelectionPredictor:
    random = np.random.default_rng(0)

    def values(*shape: int) -> np.ndarray:
        return random.normal(size=shape).astype(np.float32)

    statistics = selection_statistics(trace)
    return SelectionPredictor(
        *(values(24, 16), values(3, 16), values(8, 16), *statistics),
        weights=(values(16, 8), values(8, 8)),
        biases=(values(8), values(8)),
    )


def try_out(path: Path, asks: bool) -> Outcome:
    """Uses the damaged file as the program would. `asks`: loads the model and asks it something; else plans only."""
    menu = ""
    try:
        if path.parent.name == "files":
            _use_file(path)
        else:
            menu = describe_folder(path.parent).reason
            failed = _ask(path.parent) if asks else _plan(path.parent)
            if failed is not None:
                return failed._replace(menu=menu)
    except (MoeChatError, OffloadError) as error:
        return Outcome("refused", type(error).__name__, error.message, error.hint, menu)
    except BaseException as error:  # noqa: BLE001 - whatever else is raised is what the campaign looks for
        return Outcome("wrong", type(error).__name__, str(error)[:2000], "", menu)
    return Outcome("answered", menu=menu)


def _use_file(path: Path) -> None:
    match path.name:
        case "trace.npz":
            trace = load_trace(path)
            trace.decode_only().selection_mask()
        case "profile.npz":
            profile = load_profile(path, (_MODEL,))
            profile.warm_start([layer.num_experts for layer in profile.geometry.layers])
        case "activations.requests":
            _chat_on_with(path)
        case "maths.predictor.safetensors":
            _predict_with(path)
        case "eviction.json":
            str(load_tuned_weights(path, (_MODEL,)))
        case _:
            read_prompts(path, None)


def _chat_on_with(path: Path) -> None:
    """What comes after the file is read, or refused, is kept."""
    before, after = (PastRequests(_MODEL, _GEOMETRY) for _ in range(2))
    before.path = after.path = path
    before.collection.add(np.ones((3, 8), np.int64))
    problem = before.problem
    before.save()
    assert after.collection.size == before.collection.size
    assert not after.problem
    if problem:
        raise ProfileError(problem, "None is needed.")


def _predict_with(path: Path) -> None:
    store = PredictorStore(_MODEL, _GEOMETRY)
    store._folder = path.parent
    store.largest_bytes()
    kept = store.best_for("maths")
    if kept is None:
        assert store.problem or not os.path.lexists(path)
        store.load("maths")
    else:
        forecaster = SelectionForecaster(_GEOMETRY, kept.predictor)
        forecaster.begin_iteration(is_decode=True)
        forecaster.routed(0, [1, 5], (1, 1))
        assert len(forecaster.predict(0, 1)) == 2


def _plan(folder: Path) -> None:
    plan_model(config_of(folder), folder, lambda: False)
    load_tokenizer(folder)


def _ask(folder: Path) -> Outcome | None:
    """What the answer failed with, if it did after its first token."""
    events: list[Event] = []
    session = Session(config_of(folder), events.append, lambda snapshot: None, lambda: False)
    try:
        session.answer(Submit(1, (Message("user", "w5 w6 w7"),), SamplingConfig(max_new_tok=4, seed=1)))
    finally:
        session.close()
    end = events[-1]
    if isinstance(end, TurnEnded) and end.failure is not None:
        is_unexpected = end.failure.title == "Unexpected error"
        kind = "wrong" if is_unexpected else "refused"
        return Outcome(kind, end.failure.title, end.failure.message, end.failure.hint)
    return None
