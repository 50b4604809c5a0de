"""`owner/name:TAG` leads to one GGUF model of a repository: chosen, fetched, gone on with, compared, found again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.checkpoint import hub_cache
from engine.checkpoint.hub_download import download_model
from engine.checkpoint.hub_gguf import HubName, choices_in_words, ggufs_of, hub_name, matching, names_to_type
from engine.checkpoint.model_source import local_model, resolve_model
from engine.demo.model import never
from engine.errors import DownloadError, ModelNotFoundError, UnsupportedModelError
from engine.events import LoadProgress
from offload.errors import WaitCancelled
from tests.patience import PATIENCE_S
from tests.unit.engine.checkpoint.fake_hub import FakeHub, serving

FILES = {
    "Model-Q4_K_M.gguf": b"4" * 24_000_000,
    "Model-Q8_0-00001-of-00002.gguf": b"8" * 1_000,
    "Model-Q8_0-00002-of-00002.gguf": b"9" * 2_000,
    "BF16/Model-BF16-00001-of-00003.gguf": b"b",
    "mmproj-F16.gguf": b"m",
    "imatrix.gguf": b"i",
    "README.md": b"#",
}


def ignore(event: LoadProgress) -> None:
    """Nobody watches."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("owner/model", HubName("owner/model")),
        ("owner/model:q4_k_m", HubName("owner/model", "q4_k_m")),
        ("owner/model:BF16/Model-BF16.gguf", HubName("owner/model", "BF16/Model-BF16.gguf")),
        ("owner/model:", None),
        ("owner:model", None),
        ("owner/model/x:Q4", None),
        ("owner/model:../x", None),
    ],
)
def test_names(text: str, expected: HubName | None) -> None:
    assert hub_name(text) == expected


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("Qwen3-30B-A3B-Q4_K_M.gguf", "Q4_K_M"),
        ("qwen3-30b-a3b.q4_0.gguf", "q4_0"),
        ("Model-UD-Q4_K_XL-00001-of-00002.gguf", "UD-Q4_K_XL"),
        ("gpt-oss-20b-mxfp4.gguf", "mxfp4"),
        ("gpt-oss-20b-MXFP4_MOE.gguf", "MXFP4_MOE"),
        ("a-IQ2_XXS.gguf", "IQ2_XXS"),
        ("a-TQ1_0.gguf", "TQ1_0"),
        ("a-bf16.gguf", "bf16"),
        ("Q6_K/model-00001-of-00009.gguf", "Q6_K"),
        ("model.gguf", ""),
    ],
)
def test_a_tag_is_what_the_name_ends_with(name: str, tag: str) -> None:
    (model,) = ggufs_of([name])
    assert model.tag == tag


def test_what_a_tag_names_and_what_is_to_be_typed() -> None:
    found = ggufs_of([*FILES, "other/Model-Q4_K_M.gguf"])
    assert [model.num_missing for model in found] == [2, 0, 0, 0]
    assert [model.names[0] for model in matching(found, "q8_0")] == ["Model-Q8_0-00001-of-00002.gguf"]
    assert len(matching(found, "Q4_k_M")) == 2
    assert [model.names for model in matching(found, "other/model-q4_k_m.gguf")] == [("other/Model-Q4_K_M.gguf",)]
    assert names_to_type("o/m", found) == [
        "o/m:BF16", "o/m:Model-Q4_K_M.gguf", "o/m:Q8_0", "o/m:other/Model-Q4_K_M.gguf",
    ]  # fmt: skip
    assert "o/m:Q8_0 (2.9 KiB)" in choices_in_words(
        "o/m", found, {name: len(content) for name, content in FILES.items()}
    )
    ud = ggufs_of(["a-UD-Q4_K_XL.gguf", "a-Q4_K_M.gguf"])
    assert matching(ud, "q4_k_xl") == matching(ud, "ud-q4_k_xl") != []


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with serving(FakeHub(dict(FILES))) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        yield hub


def test_one_file_is_fetched_and_found_again_without_the_hub(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[LoadProgress] = []
    path = download_model("owner/model:q4_k_m", told.append, never)
    assert path.name == "Model-Q4_K_M.gguf"
    assert path.read_bytes() == FILES[path.name]
    assert {name for name, _ in hub.fetched} == {path.name}
    sized = [event for event in told if event.total]
    assert sized
    assert all(event.total == 24_000_000 and 0 <= event.done <= event.total for event in sized)
    hub.fetched.clear()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in ("owner/model:Q4_K_M", "owner/model:model-q4_k_m", "owner/model"):
        assert resolve_model(name, ignore) == path
    assert local_model("owner/model:Q8_0") is None
    assert hub.fetched == []


def test_all_parts_are_fetched_and_a_missing_one_is_told(hub: FakeHub, tmp_path: Path) -> None:
    path = download_model("owner/model:Q8_0", ignore, never)
    assert path.name == "Model-Q8_0-00001-of-00002.gguf"
    assert (path.parent / "Model-Q8_0-00002-of-00002.gguf").read_bytes() == b"9" * 2_000
    (path.parent / "Model-Q8_0-00002-of-00002.gguf").unlink()
    assert hub_cache.cached_gguf(HubName("owner/model", "Q8_0")) is None
    with pytest.raises(UnsupportedModelError, match="2 of the parts of Model-BF16 are missing on the hub"):
        download_model("owner/model:BF16", ignore, never)


@pytest.mark.parametrize(
    ("tag", "message"),
    [
        ("", "holds 3 GGUF models: owner/model:BF16"),
        pytest.param(":Q5_K_M", "holds no GGUF model called 'Q5_K_M': owner/model:BF16", marks=pytest.mark.long),
    ],
)
def test_several_or_none_are_listed_with_what_to_type(hub: FakeHub, tag: str, message: str) -> None:
    with pytest.raises(ModelNotFoundError, match=message) as caught:
        download_model(f"owner/model{tag}", ignore, never)
    assert "owner/model:Q4_K_M (22.9 MiB)" in caught.value.message
    assert "--model owner/model:TAG" in caught.value.hint
    assert hub.fetched == []


def test_a_stopped_file_is_gone_on_with(hub: FakeHub, tmp_path: Path) -> None:
    hub.stall_after_bytes = 21_000_000  # the library writes 10 MB at a time
    is_coming = threading.Event()

    def watch(event: LoadProgress) -> None:
        if event.done >= 19_000_000:
            stopped_at.append(time.monotonic())
            is_coming.set()

    stopped_at: list[float] = []
    with pytest.raises(WaitCancelled):
        download_model("owner/model:Q4_K_M", watch, is_coming.is_set)
    assert time.monotonic() - stopped_at[0] < PATIENCE_S
    (part,) = tmp_path.rglob("*.part")
    assert part.stat().st_size >= 19_000_000
    hub.stall_after_bytes = None
    hub.fetched.clear()
    told: list[LoadProgress] = []
    path = download_model("owner/model:Q4_K_M", told.append, never)
    assert path.read_bytes() == FILES["Model-Q4_K_M.gguf"]
    assert hub.fetched[0][1] >= 19_000_000
    assert min(event.done for event in told if event.total) >= 19_000_000
    assert not list(tmp_path.rglob("*.part"))


def test_other_bytes_than_the_hub_says_are_removed(hub: FakeHub, tmp_path: Path) -> None:
    hub.is_damaged = True
    with pytest.raises(DownloadError, match="arrived damaged: its SHA-256") as caught:
        download_model("owner/model:Q4_K_M", ignore, never)
    assert "try again" in caught.value.hint
    assert not list(tmp_path.rglob("*.part"))
    assert local_model("owner/model:Q4_K_M") is None
