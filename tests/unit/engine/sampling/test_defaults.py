"""A generation_config.json is read typed and bounded: off is off, and what makes no sense is named."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import SamplingConfig
from engine.errors import CheckpointError
from engine.sampling.defaults import ModelDefaults, defaults_of, read_model_defaults, with_model_defaults
from engine.sampling.sampler import Sampler

KEYS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "do_sample", "eos_token_id")


def test_what_the_user_left_open_is_the_models() -> None:
    own = ModelDefaults(do_sample=True, temperature=0.6, top_p=0.95, top_k=20, min_p=0.1, repetition_penalty=1.05)
    merged = with_model_defaults(SamplingConfig(seed=5, max_new_tok=7), own)
    assert merged == SamplingConfig(0.6, 0.95, 20, 0.1, 1.05, seed=5, max_new_tok=7)
    asked = SamplingConfig(temperature=0.0, top_p=1.0, top_k=0, min_p=0.0, repetition_penalty=1.0)
    assert with_model_defaults(asked, own) == asked


def test_a_model_that_does_not_sample_is_greedy() -> None:
    assert with_model_defaults(SamplingConfig(), ModelDefaults()).temperature == 0
    assert with_model_defaults(SamplingConfig(), ModelDefaults(temperature=0.7)).temperature == 0
    assert with_model_defaults(SamplingConfig(), ModelDefaults(do_sample=True)).temperature == 1
    assert with_model_defaults(SamplingConfig(), ModelDefaults(do_sample=True, temperature=0.0)).temperature == 0


@pytest.mark.parametrize(
    ("key", "off"),
    [
        ("top_k", [0, -1, None, 0.0]),
        ("top_p", [1, 1.0, 1.1, None]),
        ("min_p", [0, 0.0, None]),
        ("repetition_penalty", [1, 1.0, None]),
        ("temperature", [None]),
        ("do_sample", [None, False]),
    ],
)
def test_what_is_off_is_off(key: str, off: list[Any]) -> None:
    for value in off:
        assert defaults_of({key: value, "an_unknown_key": {"a": [1]}}, "file") == ModelDefaults()


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [("top_k", 50.0, 50), ("top_k", 1, 1), ("top_p", 0, 0.0), ("min_p", 1, 1.0), ("temperature", 0, 0.0)],
)
def test_what_is_in_range_is_taken(key: str, value: Any, expected: Any) -> None:
    assert getattr(defaults_of({key: value}, "file"), key) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, set()), (2, {2}), ([2, 7], {2, 7}), ([[2], 7], {2, 7}), (-1, set()), ([], set()), ([None], set())],
)
def test_end_tokens(value: Any, expected: set[int]) -> None:
    assert defaults_of({"eos_token_id": value}, "file").end_tokens == expected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("top_k", -2),
        ("top_k", "50"),
        ("top_k", [50]),
        ("top_k", 1.5),
        ("top_k", True),
        ("top_k", 10**400),
        ("top_p", -0.1),
        ("top_p", "0.9"),
        ("top_p", float("nan")),
        ("top_p", float("inf")),
        ("top_p", 10**400),
        ("min_p", 1.5),
        ("min_p", {}),
        ("repetition_penalty", 0),
        ("repetition_penalty", -1.0),
        ("repetition_penalty", 1e9),
        ("temperature", -1),
        ("temperature", "warm"),
        ("temperature", False),
        ("temperature", "x" * 100_000),
        ("do_sample", "yes"),
        ("do_sample", 1),
        ("eos_token_id", "</s>"),
        ("eos_token_id", ["</s>"]),
        ("eos_token_id", 1.0),
        ("eos_token_id", True),
        ("eos_token_id", {"a": 1}),
        ("eos_token_id", [[[1]]]),
        ("eos_token_id", list(range(100_000))),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_makes_no_sense_is_named(tmp_path: Path, key: str, value: Any) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps({key: value}))
    with pytest.raises(CheckpointError, match=rf"generation_config\.json: {key} is ") as caught:
        read_model_defaults(tmp_path)
    assert len(caught.value.message) < 300 + len(str(tmp_path))
    assert caught.value.hint


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b'"a"', b"\xff\xfe", b"[" * 100_000, b" " * (2 << 20)], ids=lambda b: b[:5]
)
def test_what_is_no_object(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "generation_config.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"generation_config\.json"):
        read_model_defaults(tmp_path)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "generation_config.json")
    with pytest.raises(CheckpointError, match="is not a file"):
        read_model_defaults(tmp_path)


def test_without_a_file_everything_is_off(tmp_path: Path) -> None:
    assert read_model_defaults(tmp_path) == ModelDefaults()


ANY_VALUE = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.integers(-2, 3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=2)),
    max_leaves=4,
)


@given(values=st.dictionaries(st.sampled_from(KEYS), ANY_VALUE))
@settings(max_examples=100, deadline=None)
def test_any_values_are_refused_or_can_be_sampled_with(values: dict[str, Any]) -> None:
    refusal, own = None, ModelDefaults()
    try:
        own = defaults_of(values, "file")
    except CheckpointError as error:
        refusal = error.message
    assert refusal is None or any(refusal.startswith(f"file: {key} is ") for key in values)
    Sampler(with_model_defaults(SamplingConfig(), own))
