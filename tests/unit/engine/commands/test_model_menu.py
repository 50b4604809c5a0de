"""The menu of models: every place that is searched, and what is said of each GGUF file before it is loaded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from engine.checkpoint import gguf_places
from engine.checkpoint.catalogue import ModelEntry
from engine.commands.model_menu import describe_model, list_models
from engine.config import EngineConfig
from tests.architectures.packed_float8 import pack_matrices
from tests.gguf_files import write_gguf
from tests.unit.engine.conftest import TinyFolder

SMALL = {"layers": 2, "hidden": 256, "expert_ff": 256, "dense_ff": 256, "head_dim": 64, "experts": 8, "top_k": 2}
OTHERS = EngineConfig(model="")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing lies in the places that are searched, and the current folder is empty."""
    for name in ("HF_HUB_CACHE", "MOE_CHAT_CACHE", "OLLAMA_MODELS"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    return tmp_path / "home"


def ten_files(folder: Path) -> Path:
    """Five that run, one of them in two parts; two broken ones; two unknown ones; one with a part missing."""
    folder.mkdir()
    write_gguf(folder / "a-Q4_K_M.gguf", "qwen3moe", "Q4_K_M", **SMALL)
    write_gguf(folder / "b-Q8_0.gguf", "glm4moe", "Q8_0", **SMALL)
    write_gguf(folder / "c-F16.gguf", "qwen3moe", "F16", **SMALL)
    write_gguf(folder / "d-MXFP4.gguf", "qwen3moe", "MXFP4", **SMALL)
    write_gguf(folder / "e-split.gguf", "qwen3moe", "Q8_0", split_max_tensors=20, **SMALL)
    os.truncate(write_gguf(folder / "f-cut.gguf", "qwen3moe", "Q8_0", **SMALL), 500_000)
    (folder / "g-page.gguf").write_text("<html>404</html>")
    unknown = {"general.architecture": "whalemoe", "whalemoe.expert_count": 8}
    write_gguf(folder / "h-unknown.gguf", "qwen3moe", "Q8_0", extra=unknown, **SMALL)
    write_gguf(folder / "i-rule.gguf", "qwen3moe", "Q8_0", extra={"tokenizer.ggml.pre": "whale"}, **SMALL)
    parts = write_gguf(folder / "j-parts.gguf", "qwen3moe", "Q8_0", split_max_tensors=20, **SMALL)
    parts.with_name(parts.name.replace("00001", "00002", 1)).unlink()
    return folder


def test_a_folder_of_ten_files_in_one_look(tmp_path: Path) -> None:
    entries = {entry.name: entry for entry in list_models([ten_files(tmp_path / "ten")], OTHERS)}
    assert [name for name, entry in entries.items() if entry.is_supported] == [
        "demo", "a-Q4_K_M", "b-Q8_0", "c-F16", "d-MXFP4", "e-split",
    ]  # fmt: skip
    reasons = {name: entry.reason for name, entry in entries.items() if not entry.is_supported}
    assert list(reasons) == ["f-cut", "g-page", "h-unknown", "i-rule", "j-parts"]
    for name, reason in (
        ("f-cut", "damaged: f-cut.gguf is cut off"),
        ("g-page", "damaged: g-page.gguf: it is no GGUF file"),
        ("h-unknown", "no GGUF family runs the architecture 'whalemoe'"),
        ("i-rule", "splits texts by the rule 'whale'"),
        ("j-parts", "1 of the 2 parts of j-parts is missing"),
    ):
        assert reason in reasons[name]
    first = entries["a-Q4_K_M"]
    assert first.formats.startswith("Q4_K ")
    assert "Q6_K" in first.formats
    assert (first.architecture, first.backend) == ("qwen3moe", "ggml")
    for name in ("a-Q4_K_M", "b-Q8_0", "e-split"):
        costs = entries[name].costs
        assert costs is not None
        assert 0 < costs.least_bytes <= costs.budget_bytes
        assert costs.residency == 1, "what is free holds all of so small a model"


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_checkpoint_folder_has_its_costs_too(tiny_folder: TinyFolder, tmp_path: Path, is_packed: bool) -> None:
    folder = shutil.copytree(tiny_folder("qwen3_moe"), tmp_path / "model")
    if is_packed:
        pack_matrices(folder, tmp_path / "plain")
    entry = describe_model(folder, replace(OTHERS, backend="auto"))
    assert (entry.is_supported, entry.reason, entry.backend) == (True, "", "ggml")
    assert entry.costs is not None
    assert entry.costs.residency == 1
    assert ("F8_E4M3" in entry.formats) == is_packed
    on_the_library = describe_model(folder, replace(OTHERS, backend="transformers"))
    assert on_the_library.costs is None
    assert on_the_library.reason == ("quantised weights (fp8) cannot be read" if is_packed else "")


def test_costs_follow_the_budget(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a.gguf", quant="F32", **{**SMALL, "experts": 64, "hidden": 512, "expert_ff": 512})
    whole = costs_of(path, OTHERS)
    least = costs_of(path, EngineConfig(model="", memory_bytes=whole.least_bytes))
    between = (whole.least_bytes + whole.budget_bytes) // 2
    half = costs_of(path, EngineConfig(model="", memory_bytes=between))
    assert least.residency is not None
    assert half.residency is not None
    assert 3 / 64 <= least.residency < half.residency < 1
    assert costs_of(path, EngineConfig(model="", memory_bytes=whole.least_bytes - (1 << 20))).residency is None
    assert costs_of(path, EngineConfig(model="", residency=0.5)).residency == 0.5


def costs_of(path: Path, config: EngineConfig):  # type: ignore[no-untyped-def]
    costs = describe_model(path, config).costs
    assert costs is not None
    return costs


def test_where_other_programs_keep_models(tmp_path: Path, home: Path) -> None:
    lm_studio = home / ".lmstudio" / "models" / "publisher" / "model"
    lm_studio.mkdir(parents=True)
    write_gguf(lm_studio / "one-Q8_0.gguf", quant="Q8_0", **SMALL)
    (lm_studio / "mmproj-one.gguf").write_bytes(b"GGUF")
    store = tmp_path / "OLLAMA_MODELS"
    (store / "blobs").mkdir(parents=True)
    write_gguf(store / "blobs" / "sha256-ab12", quant="Q8_0", seed=1, **SMALL)
    manifest("registry.ollama.ai/library/qwen3/30b", store, "sha256:ab12")
    manifest("registry.ollama.ai/someone/else/latest", store, "sha256:cd34")
    manifest("hf.co/owner/model/Q4_K_M", store, "../../etc/passwd")
    snapshot = tmp_path / "HF_HUB_CACHE" / "models--owner--repo" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot.parent.parent / "refs").mkdir()
    (snapshot.parent.parent / "refs" / "main").write_text("abc")
    write_gguf(snapshot / "Model-Q8_0.gguf", quant="Q8_0", seed=2, **SMALL)
    write_gguf(home / "here.gguf", quant="Q8_0", seed=3, **SMALL)
    (home / "again.gguf").symlink_to(home / "here.gguf")
    entries = list_models([], OTHERS)[1:]
    assert [(entry.name, entry.place, entry.is_supported) for entry in entries] == [
        ("owner/repo:Q8_0", "Hugging Face", True),
        ("one-Q8_0", "LM Studio", True),
        ("qwen3:30b", "Ollama", True),
        ("someone/else:latest", "Ollama", False),
        ("again", "", True),
    ]
    assert entries[0].location == "owner/repo:Q8_0"
    assert entries[2].location == str(store / "blobs" / "sha256-ab12")


def manifest(name: str, store: Path, digest: str) -> None:
    path = store / "manifests" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    template = {"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:ee", "size": 3}
    layers = [template, {"mediaType": "application/vnd.ollama.image.model", "digest": digest, "size": 7}]
    path.write_text(json.dumps({"schemaVersion": 2, "layers": layers}))


def test_what_is_no_file_never_blocks_and_large_folders_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    os.mkfifo(folder / "a-pipe.gguf")
    (folder / "b-loop.gguf").symlink_to("b-loop.gguf")
    (folder / "c-device.gguf").symlink_to("/dev/zero")
    (folder / "d-folder.gguf").mkdir()
    (folder / "round").symlink_to(folder)
    reasons = {entry.name: entry.reason for entry in list_models([folder], OTHERS) if not entry.is_supported}
    assert set(reasons) == {"a-pipe", "b-loop", "c-device"}
    assert "FIFO" in reasons["a-pipe"]
    assert "a device" in reasons["c-device"]
    monkeypatch.setattr(gguf_places, "MOST_LISTED", 2)
    told = [entry for entry in list_models([folder], OTHERS) if "more than 2 files" in entry.reason]
    assert [entry.name for entry in told] == [str(folder)]


def test_the_command_prints_them_all(tmp_path: Path, home: Path) -> None:
    folder = ten_files(tmp_path / "ten")
    command = [sys.executable, "-m", "app.cli", "models", str(folder)]
    where = {**os.environ, "MOE_CHAT_HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=where).stdout
    assert "a-Q4_K_M\n    2 x 8 experts · " in said
    assert "\n    qwen3moe, ggml · Q4_K " in said
    assert " · 100% at " in said
    assert "j-parts\n    cannot be run: " in said
    found = json.loads(
        subprocess.run([*command, "--json"], capture_output=True, text=True, check=True, env=where).stdout
    )
    assert [ModelEntry(**{**entry, "costs": None}).name for entry in found][:2] == ["demo", "a-Q4_K_M"]
