"""What `--config` names: a folder, or a model of the hub, of which the small files alone are fetched."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.checkpoint.config_source import resolve_config
from engine.errors import ModelNotFoundError, UnsupportedModelError
from tests.unit.engine.checkpoint.fake_hub import FakeHub, serving

SMALL = {"config.json": b'{"model_type": "qwen3_moe"}', "tokenizer.json": b"{}", "tokenizer_config.json": b"{}"}
LARGE = {"model-00001-of-00002.safetensors": b"x" * 1000, "model.safetensors.index.json": b"{}", "code.py": b"1"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    for name in ("HF_HUB_CACHE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def never() -> bool:
    return False


def test_of_a_hub_model_configuration_and_tokenizer_are_fetched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(FakeHub(SMALL | LARGE)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        folder = resolve_config("owner/model", never)
        assert {path.name for path in folder.iterdir()} == set(SMALL)
        hub.fetched.clear()
        assert resolve_config("owner/model", never) == folder
        assert hub.fetched == []


def test_a_hub_model_without_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(FakeHub({"README.json": b"{}"})) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        with pytest.raises(UnsupportedModelError, match=r"it has no config\.json"):
            resolve_config("owner/model", never)
        with pytest.raises(ModelNotFoundError, match="owner/nothing"):
            resolve_config("owner/nothing", never)


def test_a_folder_is_itself_and_anything_else_is_told(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"holds no config\.json"):
        resolve_config(str(tmp_path), never)
    (tmp_path / "config.json").write_text("{}")
    assert resolve_config(str(tmp_path), never) == tmp_path
    with pytest.raises(ModelNotFoundError, match="is no folder") as caught:
        resolve_config(str(tmp_path / "config.json"), never)
    assert "Hugging Face id" in caught.value.hint
