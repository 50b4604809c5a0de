"""A model's name leads to a folder, or to an error that says what to do; nothing is fetched that is there already."""

from __future__ import annotations

import errno
import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.checkpoint import hub_child, hub_download, model_source
from engine.checkpoint.model_source import resolve_model
from engine.demo.model import never
from engine.errors import CheckpointError, DownloadError, ModelNotFoundError, MoeChatError, UnsupportedModelError
from engine.events import LoadProgress
from offload.errors import WaitCancelled
from tests.unit.engine.checkpoint.fake_hub import FakeHub, serving

WHOLE = ("config.json", "model.safetensors")


def ignore(event: LoadProgress) -> None:
    """Nobody watches."""


def folder_with(folder: Path, *names: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text("{}")
    return folder


def test_the_demo_is_asked_for_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_source, "ensure_demo_apart", lambda progress, is_cancelled: tmp_path)
    assert resolve_model("demo", ignore) == tmp_path


def test_a_checkpoint_folder_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_with(tmp_path / "owner", *WHOLE, "extra.gguf")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in (str(folder), "owner", "./owner", "~/owner"):
        assert resolve_model(name, ignore) == folder


@pytest.mark.parametrize(
    ("names", "expected", "message", "hint"),
    [
        ((), ModelNotFoundError, "no config.json", "safetensors"),
        (("model.safetensors",), ModelNotFoundError, "no config.json", "safetensors"),
        (("a.gguf", "b.gguf"), CheckpointError, r"holds 2 GGUF models: a\.gguf, b\.gguf", "a.gguf"),
        (("mmproj-a.gguf",), ModelNotFoundError, "no config.json", "GGUF file"),
        (("config.json",), CheckpointError, "no weights", "Fetch the model again"),
        (("config.json", "pytorch_model.bin"), UnsupportedModelError, r"pytorch_model\.bin, a pickle", "safetensors"),
        (("config.json", "consolidated.00.pth"), UnsupportedModelError, "a pickle", "safetensors"),
    ],
)
def test_a_folder_that_is_no_checkpoint_is_refused(
    tmp_path: Path, names: tuple[str, ...], expected: type[MoeChatError], message: str, hint: str
) -> None:
    with pytest.raises(expected, match=message) as caught:
        resolve_model(str(folder_with(tmp_path, *names)), ignore)
    assert hint in caught.value.hint


def test_a_file_that_is_no_gguf_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="is a file, and no GGUF file") as caught:
        resolve_model(str(folder_with(tmp_path, "model.safetensors") / "model.safetensors"), ignore)
    assert "GGUF file" in caught.value.hint


class TestGguf:
    """A file, any part of a split one, a link, or a folder with one model's files."""

    def test_a_file_and_a_folder_with_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = folder_with(tmp_path / "a", "model.Q4_K.gguf", "mmproj-model.gguf", "config.json", "README.md")
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.chdir(tmp_path)
        for name in (str(folder), "a", "~/a/model.Q4_K.gguf", "a/../a/model.Q4_K.gguf"):
            assert resolve_model(name, ignore) == folder / "model.Q4_K.gguf"

    @pytest.mark.parametrize("part", [1, 2, 3])
    def test_any_part_leads_to_the_first(self, tmp_path: Path, part: int) -> None:
        names = [f"m-{number:05}-of-00003.gguf" for number in (1, 2, 3)]
        folder = folder_with(tmp_path / "a", *names)
        assert resolve_model(str(folder / names[part - 1]), ignore) == folder / names[0]
        assert resolve_model(str(folder), ignore) == folder / names[0]

    def test_a_missing_first_part_is_for_the_reader_to_tell(self, tmp_path: Path) -> None:
        folder = folder_with(tmp_path / "a", "m-00002-of-00002.gguf")
        assert resolve_model(str(folder), ignore) == folder / "m-00002-of-00002.gguf"

    def test_the_name_of_a_link_is_kept(self, tmp_path: Path) -> None:
        (folder_with(tmp_path / "blobs") / "4f5e").write_bytes(b"GGUF")
        link = folder_with(tmp_path / "a") / "model.gguf"
        link.symlink_to(tmp_path / "blobs" / "4f5e")
        assert resolve_model(str(link), ignore) == link

    def test_a_file_without_the_suffix_is_known_by_its_first_bytes(self, tmp_path: Path) -> None:
        blob = tmp_path / "sha256-4f5e"
        blob.write_bytes(b"GGUF....")
        assert resolve_model(str(blob), ignore) == blob


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("/no/such/folder", "owner/model"),
        ("./nothing", "owner/model"),
        ("~nobody/model/x", "owner/model"),
        ("two words/here", "owner/model"),
        ("gone/model.gguf", "owner/model"),
        ("x" * 5000, "owner/model"),
        ("a\0b", "owner/model"),
        ("Deno", "Did you mean demo?"),
    ],
)
def test_a_name_that_leads_nowhere_asks_nobody(name: str, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_source, "download_model", lambda *_: pytest.fail("asked the hub"))
    with pytest.raises(ModelNotFoundError) as caught:
        resolve_model(name, ignore)
    assert hint in caught.value.hint


class TestLocalCache:
    """What is wholly in the hub's cache is used, and the hub is not asked."""

    @pytest.fixture
    def snapshot(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        def find(repo_id: str, name: str) -> str | None:
            return str(tmp_path / name) if (tmp_path / name).is_file() else None

        monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", find)
        monkeypatch.setattr(model_source, "download_model", lambda *_: Path("fetched"))
        return tmp_path

    def test_a_whole_model_is_used(self, snapshot: Path) -> None:
        folder_with(snapshot, *WHOLE, "tokenizer.json")
        assert resolve_model("owner/model", ignore) == snapshot

    def test_a_whole_sharded_model_is_used(self, snapshot: Path) -> None:
        folder_with(snapshot, "config.json", "a.safetensors", "b.safetensors", "tokenizer.model")
        index = {"weight_map": {"x": "a.safetensors", "y": "b.safetensors", "z": "a.safetensors"}}
        (snapshot / "model.safetensors.index.json").write_text(json.dumps(index))
        assert resolve_model("owner/model", ignore) == snapshot
        (snapshot / "b.safetensors").unlink()
        assert resolve_model("owner/model", ignore) == Path("fetched")

    @pytest.mark.parametrize(
        "names",
        [(), ("config.json", "tokenizer.json"), WHOLE, (*WHOLE, "tokenizer.json", "model.safetensors.index.json")],
    )
    def test_a_part_of_a_model_is_fetched(self, snapshot: Path, names: tuple[str, ...]) -> None:
        folder_with(snapshot, *names)
        assert resolve_model("owner/model", ignore) == Path("fetched")


class TestDownload:
    """The hub's own library, against a hub on this machine."""

    @pytest.fixture
    def hub(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        monkeypatch.delenv("HF_HUB_CACHE", raising=False)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        files = {"config.json": b'{"a": 1}', "tokenizer.json": b"{}", "model.safetensors": b"x" * 30_000_000}
        unwanted = {"pytorch_model.bin": b"y", "modeling.py": b"", "original/model.safetensors": b"z", "README.md": b""}
        with serving(FakeHub(files | unwanted)) as hub:
            monkeypatch.setenv("HF_ENDPOINT", hub.address)
            yield hub

    def test_only_what_is_needed_is_fetched_and_progress_adds_up(
        self, hub: FakeHub, capfd: pytest.CaptureFixture[str]
    ) -> None:
        told: list[LoadProgress] = []
        folder = hub_download.download_model("owner/model", told.append, never)
        assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]
        assert (folder / "model.safetensors").stat().st_size == 30_000_000
        sized = [event for event in told if event.total]
        assert sized[0].total == 30_000_010
        assert all(0 <= event.done <= event.total for event in sized)
        assert capfd.readouterr().out == ""

    def test_it_can_be_stopped_and_goes_on_with_the_files_it_has(self, hub: FakeHub, tmp_path: Path) -> None:
        hub.stall_after_bytes = 20_000_000
        weights_are_coming = threading.Event()

        def watch(event: LoadProgress) -> None:
            if event.done > 1_000_000:
                weights_are_coming.set()

        begun = time.monotonic()
        with pytest.raises(WaitCancelled):
            hub_download.download_model("owner/model", watch, weights_are_coming.is_set)
        assert time.monotonic() - begun < 60
        assert list(tmp_path.rglob("*.incomplete")) == []

        hub.stall_after_bytes = None
        hub.fetched.clear()
        hub_download.download_model("owner/model", ignore, never)
        assert [name for name, _ in hub.fetched] == ["model.safetensors"]

    def test_a_gated_model_says_how_to_get_in(self, hub: FakeHub) -> None:
        hub.is_gated = True
        with pytest.raises(DownloadError, match="gated") as caught:
            hub_download.download_model("owner/model", ignore, never)
        assert "HF_TOKEN" in caught.value.hint

    def test_an_unknown_model_is_not_found(self, hub: FakeHub) -> None:
        with pytest.raises(ModelNotFoundError, match="no model owner/nothing"):
            hub_download.download_model("owner/nothing", ignore, never)

    @pytest.mark.parametrize(
        ("files", "message"),
        [
            ({"model-00001-of-00002.gguf": b""}, "1 of the parts of model are missing"),
            ({"model.safetensors": b""}, r"config\.json"),
            ({"config.json": b"{}", "pytorch_model.bin": b""}, "no safetensors"),
        ],
    )
    def test_a_repository_with_nothing_to_run_is_refused(
        self, hub: FakeHub, files: dict[str, bytes], message: str
    ) -> None:
        hub.files = files
        with pytest.raises(UnsupportedModelError, match=message):
            hub_download.download_model("owner/model", ignore, never)
        assert hub.fetched == []

    def test_a_hub_out_of_reach_is_said(self, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        with pytest.raises(DownloadError, match="could not be reached") as caught:
            hub_download.download_model("owner/model", ignore, never)
        assert "HF_HUB_OFFLINE" in caught.value.hint


def said_by(serve: object, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What the child says when planning does `serve`."""
    answers: list[dict[str, object]] = []
    monkeypatch.setattr(hub_child, "plan_download", serve)
    hub_child.serve("owner/model", answers.append)
    assert len(answers) == 1
    return answers[0]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "disk"),
        (RuntimeError("Xet: No space left on device (os error 28)"), "disk"),
        (ConnectionError("refused"), "offline"),
        (ValueError("odd"), "other"),
    ],
)
def test_an_error_becomes_a_word(error: Exception, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(repo_id: str) -> None:
        raise RuntimeError("wrapped") from error

    assert said_by(fail, monkeypatch)["reason"] == reason


def test_a_full_disk_is_refused_before_the_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_child.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10**9}))
    hub_child._check_disk(700 * 10**6, tmp_path / "not" / "yet")
    with pytest.raises(hub_child.Refused, match=r"9\.3 GiB .* 954 MiB are free") as caught:
        hub_child._check_disk(10**10, tmp_path / "not" / "yet")
    assert caught.value.reason == "disk"


def test_a_child_that_dies_is_an_error() -> None:
    with pytest.raises(DownloadError, match="ended without an answer"):
        hub_download.download_model("owner/model", ignore, never, [sys.executable, "-c", ""])


def test_a_folder_that_may_not_be_read_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied")

    folder = folder_with(tmp_path / "model", *WHOLE)
    monkeypatch.setattr(model_source.os, "listdir", refuse)
    with pytest.raises(ModelNotFoundError, match="model cannot be read: Permission denied") as caught:
        resolve_model(str(folder), ignore)
    assert caught.value.hint
