"""A tokenizer's files are checked before the library opens them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from engine.backends.transformers.loading import load_tokenizer
from engine.checkpoint.tokenizer_files import check_tokenizer_files
from engine.errors import CheckpointError
from tests.architectures.tiny import save_tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_tokenizer(tmp_path)
    return tmp_path


def refusal(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_tokenizer(folder)
    assert caught.value.hint
    return caught.value.message


@pytest.mark.parametrize(
    "name",
    [
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "chat_template.jinja",
        "tokenizer.model",
        "merges.txt",
        "additional_chat_templates/tools.jinja",
    ],
)
@pytest.mark.parametrize("kind", ["a FIFO", "a folder", "a device"])
def test_what_is_no_file_is_never_opened(folder: Path, name: str, kind: str) -> None:
    path = folder / name
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    if kind == "a FIFO":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    assert refusal(folder) == f"{path} cannot be read: it is {kind}, not a file."


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("eos_token", 3),
        ("eos_token", {"content": 5}),
        ("bos_token", ["<s>"]),
        ("unk_token", "x" * 5000),
        ("chat_template", 7),
        ("chat_template", ["{{ x }}"]),
        ("chat_template", [{"name": "default"}]),
        ("chat_template", "x" * (2 << 20)),
        ("model_max_length", "long"),
        ("added_tokens_decoder", []),
        ("added_tokens_decoder", {"one": {"content": "x"}}),
        ("added_tokens_decoder", {"1": "x"}),
        ("added_tokens_decoder", {"1": {"content": 3}}),
        ("added_tokens_decoder", {"1": {"content": "x", "special": "yes"}}),
        ("add_bos_token", "true"),
        ("tokenizer_class", 3),
        ("additional_special_tokens", "x"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_value_of_a_wrong_type(folder: Path, key: str, value: Any) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    message = refusal(folder)
    assert f"{path}: {key} " in message
    assert len(message) < len(str(path)) + 300


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("tokenizer_config.json", b"[]", "it is a list"),
        ("tokenizer_config.json", b'{"a":' * 100_000, "nested"),
        ("special_tokens_map.json", b'{"a": 1, "a": 2}', "twice"),
        ("special_tokens_map.json", b'{"eos_token": 3}', "eos_token is 3"),
        ("chat_template.jinja", b"\xff", "not UTF-8"),
        ("tokenizer.json", b"{}", ""),
        ("tokenizer.json", b'{"version": "' + b"x" * 5000 + b'"}', ""),
        ("tokenizer.json", b"", ""),
    ],
)
def test_a_damaged_file_is_named(folder: Path, name: str, content: bytes, reason: str) -> None:
    (folder / name).write_bytes(content)
    message = refusal(folder)
    assert name in message
    assert reason in message
    assert len(message) < len(str(folder)) + 400


def test_a_file_that_is_far_too_large(folder: Path) -> None:
    with (folder / "tokenizer.json").open("r+b") as file:
        file.truncate(10 << 30)
    assert "tokenizer.json cannot be read: it has 10737418240 bytes" in refusal(folder)


def test_no_tokenizer(tmp_path: Path) -> None:
    assert "no tokenizer" in refusal(tmp_path)


def test_what_real_tokenizers_hold(folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    settings = {
        "model_max_length": 1000000000000000019884624838656,
        "chat_template": [{"name": "default", "template": "{{ messages }}"}],
        "eos_token": {"__type": "AddedToken", "content": "</s>", "lstrip": False},
        "unk_token": None,
        "added_tokens_decoder": {"2": {"content": "</s>", "special": True, "lstrip": False}},
        "anything": {"else": [1, -1]},
    }
    path.write_text(json.dumps(settings))
    check_tokenizer_files(folder)
