"""The checks of what an answer depends on: each says what was found and what to do."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import threading
from pathlib import Path

import pytest
import torch

from engine.checkpoint.gguf.header import read_gguf
from engine.checkpoint.index import TensorEntry
from engine.commands.diagnose import machine as diagnosis_machine
from engine.commands.diagnose.check import FAIL, OK, WARN, Check
from engine.commands.diagnose.diagnose import diagnose
from engine.commands.diagnose.link_trial import expert_spans, gguf_spans, try_link
from engine.commands.diagnose.machine import MachineExamination
from engine.commands.diagnose.model import ModelExamination
from engine.config import EngineConfig
from engine.plan import machine
from offload.errors import WaitCancelled
from tests.architectures.tiny import save_checkpoint
from tests.gguf_files import write_gguf
from tests.unit.engine.commands.tiny_bench import config_of
from tests.unit.engine.conftest import TinyFolder


def never() -> bool:
    return False


def model_checks(config: EngineConfig) -> dict[str, Check]:
    outcome = diagnose(config, lambda stage, done, total: None, never)
    checks = outcome.report["checks"]
    assert isinstance(checks, list)
    return {check["name"]: Check(**check) for check in checks}


def machine_check(name: str, **options: object) -> Check:
    steps = dict(MachineExamination(EngineConfig(**options)).steps())  # type: ignore[arg-type]
    return steps[name]()


def test_a_sound_model(tiny_folder: TinyFolder) -> None:
    said: list[tuple[str, int, int]] = []
    outcome = diagnose(config_of(tiny_folder("qwen3_moe")), lambda *progress: said.append(progress), never)
    checks = model_checks(config_of(tiny_folder("qwen3_moe")))
    assert outcome.is_ok
    assert list(checks) == [stage.removeprefix("checking: ") for stage, _, _ in said]
    assert {done for _, done, _ in said} == set(range(len(checks)))
    assert json.loads(json.dumps(outcome.report)) == outcome.report
    assert len(outcome.lines) >= len(checks)
    assert (checks["model"].verdict, checks["checkpoint"].verdict, checks["fit"].verdict) == (OK, OK, OK)
    assert "qwen3_moe, 3 layers, 8 experts, 2 a token" in checks["model"].found
    assert "3 slots a layer (38% of the experts), context 256 tokens" in checks["fit"].found
    assert "GB/s" in checks["link"].found
    assert checks["chat template"].verdict == WARN
    assert checks["chat template"].advice


def test_a_budget_that_is_too_small_fails_with_the_smallest_that_works(tiny_folder: TinyFolder) -> None:
    config = config_of(tiny_folder("qwen3_moe"), memory_bytes=1 << 20)
    fit = model_checks(config)["fit"]
    assert fit.verdict == FAIL
    assert "--memory" in fit.advice
    assert not diagnose(config, lambda *progress: None, never).is_ok


def test_missing_shards_fail(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path / "model", "qwen3_moe", shard_bytes=100_000)
    sorted(folder.glob("*.safetensors"))[0].unlink()
    checks = model_checks(config_of(folder))
    assert checks["model"].found.endswith("shards are missing")
    assert (checks["model"].verdict, checks["checkpoint"].verdict) == (FAIL, FAIL)
    assert checks["checkpoint"].advice


def test_a_model_that_is_not_there_is_not_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MOE_CHAT_CACHE", str(tmp_path))
    for name, advice in (("owner/model", "downloaded"), ("demo", "built")):
        checks = model_checks(EngineConfig(model=name))
        assert checks["model"].verdict == WARN
        assert advice in checks["model"].advice
        assert checks["link"].found == "not checked: there is no model to check"
    assert not list(tmp_path.iterdir())


def test_a_name_that_leads_to_nothing_fails(tmp_path: Path) -> None:
    check = model_checks(EngineConfig(model=str(tmp_path / "gone")))["model"]
    assert (check.verdict, bool(check.advice)) == (FAIL, True)


def test_a_dense_model_fails_with_the_reason(tiny_folder: TinyFolder) -> None:
    check = model_checks(config_of(tiny_folder("llama")))["model"]
    assert check.verdict == FAIL
    assert "not a Mixture-of-Experts model" in check.found


def test_what_goes_wrong_in_a_check_is_its_finding(monkeypatch: pytest.MonkeyPatch, tiny_folder: TinyFolder) -> None:
    def fail(self: ModelExamination, folder: Path) -> Check:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(ModelExamination, "_checkpoint", fail)
    checks = model_checks(config_of(tiny_folder("qwen3_moe")))
    assert checks["checkpoint"].found == "could not be checked: ZeroDivisionError: oh"
    assert checks["fit"].verdict == OK


def test_it_can_be_stopped(tiny_folder: TinyFolder) -> None:
    with pytest.raises(WaitCancelled):
        diagnose(config_of(tiny_folder("qwen3_moe")), lambda *progress: None, lambda: True)


# -- the machine


def test_libraries_are_held_against_the_pins(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ["torch==1.0.*", "rich<1", 'gguf<0; extra == "demo"']
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: wanted)
    check = machine_check("libraries")
    assert check.verdict == FAIL
    assert f"torch is {torch.__version__}, not ==1.0.*" in check.found
    assert check.advice == "pip install 'torch==1.0.*' 'rich<1'"
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: ["rich<1", "not-there>=2"])
    check = machine_check("libraries")
    assert check.verdict == WARN
    assert "not-there is missing, not >=2" in check.found


def test_more_threads_than_cores_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "num_cores", lambda: 4)
    assert machine_check("cores", compute_threads=4).verdict == OK
    assert machine_check("cores", compute_threads=5).verdict == WARN
    monkeypatch.setattr(machine, "num_cores", lambda: 1)
    assert machine_check("cores").verdict == WARN


def test_little_memory_is_a_warning_and_a_groups_limit_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_bytes", lambda: machine.rss_bytes() + (1 << 30))
    monkeypatch.setattr(machine, "group_limit_bytes", lambda: 3 << 30)
    check = machine_check("memory")
    assert check.verdict == WARN
    assert "limited to 3.0 GiB" in check.found


def test_a_full_disk_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MOE_CHAT_CACHE", str(tmp_path / "not" / "there"))
    assert machine_check("disk space").verdict == OK
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(diagnosis_machine.shutil, "disk_usage", lambda path: usage._replace(free=1))
    assert machine_check("disk space").verdict == WARN


def test_without_an_accelerator_the_device_is_memory() -> None:
    assert torch.accelerator.is_available() or machine_check("device").verdict == OK


# -- the link


def test_experts_are_found_however_they_are_stored() -> None:
    def entry(key: str, offset: int, num_bytes: int, *shape: int) -> TensorEntry:
        return TensorEntry(key, "f", offset, num_bytes, torch.float32, shape)

    spans = expert_spans(
        [
            entry("layers.0.mlp.experts.0.up_proj.weight", 0, 8, 2),
            entry("layers.0.mlp.experts.0.down_proj.weight", 100, 4, 1),
            entry("layers.0.mlp.gate.weight", 50, 4, 1),
            entry("layers.1.mlp.experts.down_proj", 200, 8, 2, 1),
        ]
    )
    assert [[span[1:] for span in expert] for expert in spans] == [
        [(0, 8, 0), (100, 4, 8)],
        [(200, 4, 0)],
        [(204, 4, 0)],
    ]


@pytest.mark.parametrize("name", ["qwen3_moe", "gpt_oss"])
def test_the_link_is_measured_on_the_models_own_files(tiny_folder: TinyFolder, name: str) -> None:
    before = threading.active_count()
    trial = try_link(tiny_folder(name), 2, never)
    assert trial is not None
    assert trial.num_bytes > 0
    assert trial.bytes_per_s > 0
    assert trial.reads == "direct" or trial.reads.startswith("buffered (")
    assert threading.active_count() == before
    with pytest.raises(WaitCancelled):
        try_link(tiny_folder(name), 2, lambda: True)
    assert threading.active_count() == before


def test_a_model_without_experts_has_no_link_to_measure(tiny_folder: TinyFolder) -> None:
    assert try_link(tiny_folder("llama"), 1, never) is None


def test_a_gguf_file_is_examined(tmp_path: Path) -> None:
    sizes = {"layers": 2, "hidden": 32, "expert_ff": 32, "head_dim": 16, "experts": 4}
    path = write_gguf(tmp_path / "a.gguf", quant="Q8_0", **sizes)
    checks = dict(ModelExamination(EngineConfig(model=str(path)), never).steps())
    assert checks["model"]().found.startswith(f"{path}: qwen3moe, 2 layers, 4 experts, 2 a token")
    assert checks["checkpoint"]().found == "27 tensors in one file; headers and lengths agree"
    assert checks["chat template"]().found.startswith("there is one")
    spans = gguf_spans(read_gguf(path))
    assert len(spans) == 8
    assert {len(runs) for runs in spans} == {3}
    whole = sum(tensor.num_bytes for tensor in read_gguf(path).tensors.values() if "_exps" in tensor.name)
    assert sum(span.num_bytes for runs in spans for span in runs) == whole
    trial = try_link(path, 1, never)
    assert trial is not None
    assert trial.num_bytes == whole
