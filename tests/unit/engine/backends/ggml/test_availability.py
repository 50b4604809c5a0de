"""Whether ggml can be used: found out in another process, kept, and told with the remedy."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.backends import choice
from engine.backends.ggml import availability, library
from engine.backends.ggml.self_test import self_test
from engine.config import AUTO, GGML, EngineConfig
from engine.errors import UnsupportedModelError
from tests.architectures.tiny import save_checkpoint
from tests.gguf_files import write_gguf


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Nothing is known before a test, and what it pretended is not known after it."""
    monkeypatch.setenv("MOE_CHAT_CACHE", str(tmp_path / "cache"))
    _forget()
    yield
    _forget()


def _forget() -> None:
    availability.ggml_problem.cache_clear()
    library.library_path.cache_clear()


def test_this_machine_can() -> None:
    assert self_test() == ""
    assert availability.ggml_problem() == ""


def test_the_answer_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert availability.ggml_problem() == ""
    availability.ggml_problem.cache_clear()
    monkeypatch.setattr(availability, "_tried", lambda: "tried again")
    assert availability.ggml_problem() == ""


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"a": 1}'])
def test_a_damaged_memory_is_none(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "ggml-self-test.json").write_bytes(content)
    assert availability.ggml_problem() == ""


def test_without_the_wheel_folders_run_on_transformers_and_gguf_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    folder = save_checkpoint(tmp_path / "glm", "glm4_moe")
    name, why = choice.choose_backend(EngineConfig(model=str(folder), backend=AUTO), folder)
    assert name == "transformers"
    assert "pip install" in why
    with pytest.raises(UnsupportedModelError, match="pip install"):
        choice.choose_backend(EngineConfig(model=str(folder), backend=GGML), folder)
    file = write_gguf(tmp_path / "model.gguf", "qwen3moe", "F16")
    with pytest.raises(UnsupportedModelError, match="only the ggml back end"):
        choice.choose_backend(EngineConfig(model=str(file), backend=AUTO), file)


def test_another_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2020.1")
    assert "2020.1 is installed" in availability.ggml_problem()
