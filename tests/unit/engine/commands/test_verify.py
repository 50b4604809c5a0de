"""The proof of exactness holds on a sound engine, and fails on one that was tampered with."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.backends.offloaded_model import OffloadedModel
from engine.commands.task_outcome import TaskOutcome
from engine.commands.verify.stored_bytes import check_slots
from engine.commands.verify.verify import verify
from engine.config import APPROX
from engine.experts.layer import MoeLayer
from offload.errors import WaitCancelled
from tests.unit.engine.commands.tiny_bench import config_of
from tests.unit.engine.conftest import TinyFolder

METHODS = ("whole", "layers")


@contextlib.contextmanager
def opened(folder: Path, **options: Any) -> Iterator[OffloadedModel]:
    engine = OffloadedModel(config_of(folder, **options), folder, lambda progress: None, lambda: False)
    try:
        yield engine
    finally:
        engine.close()


def outcome_of(engine: OffloadedModel, method: str, is_cancelled: Callable[[], bool] = lambda: False) -> TaskOutcome:
    return verify(engine, 8, lambda stage, done, total: None, is_cancelled, method)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["qwen3_moe", "gpt_oss", "qwen3_next"])
def test_a_sound_engine_is_exact(tiny_folder: TinyFolder, name: str, method: str) -> None:
    with opened(tiny_folder(name, torch.bfloat16), mode=APPROX) as engine:
        engine.set_mode(APPROX)
        outcome = outcome_of(engine, method)
        assert outcome.is_ok, outcome.lines
        assert outcome.lines[0] == "EXACT"
        assert outcome.report["method"] == method
        assert outcome.report["slots_wrong"] == 0
        assert outcome.report["slots_checked"] == sum(map(len, engine.cache.residents()))
        assert engine.state.is_approx
        assert engine.decoder.cache.tokens == []
        assert engine.loaded.modules[0].module.offload_layer is engine.layers[0]
        assert all(value is None for value in engine.loaded.modules[0].module._parameters.values())


@pytest.mark.parametrize("method", METHODS)
def test_a_byte_of_a_slot_is_wrong(tiny_folder: TinyFolder, method: str) -> None:
    with opened(tiny_folder("qwen3_moe"), residency=1.0) as engine:
        engine.greedy_ids(list(range(3, 100)), 30)
        assert outcome_of(engine, method).is_ok
        checked, _ = check_slots(engine)
        slot = next(slot for expert in range(8) if (slot := engine.cache.slot_of(1, expert)) is not None)
        engine.pool.memory(slot)[3] ^= 0x55
        assert check_slots(engine) == (checked, 1)
        outcome = outcome_of(engine, method)
        assert not outcome.is_ok
        assert outcome.lines[0] == "NOT EXACT"
        assert outcome.report["slots_wrong"] == 1


def test_a_byte_of_the_router_is_wrong(tiny_folder: TinyFolder) -> None:
    with opened(tiny_folder("qwen3_moe")) as engine, torch.inference_mode():
        engine.loaded.model.get_parameter("model.layers.1.mlp.gate.weight")[2] *= -1
        assert not outcome_of(engine, "whole").is_ok


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("part", ["_prefill", "_decode"])
def test_an_expert_is_left_out(
    tiny_folder: TinyFolder, method: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute = getattr(MoeLayer, part)

    def without_the_last(
        layer: MoeLayer, hidden: torch.Tensor, index: torch.Tensor, weights: torch.Tensor, *wanted: slice
    ) -> torch.Tensor:
        weights = weights.clone()
        weights[:, -1] = 0
        result: torch.Tensor = compute(layer, hidden, index, weights, *wanted)
        return result

    with opened(tiny_folder("qwen3_moe")) as engine:
        monkeypatch.setattr(MoeLayer, part, without_the_last)
        outcome = outcome_of(engine, method)
        assert not outcome.is_ok
        assert outcome.report["slots_wrong"] == 0


@pytest.mark.parametrize("method", METHODS)
def test_it_can_be_stopped(tiny_folder: TinyFolder, method: str) -> None:
    with opened(tiny_folder("qwen3_moe")) as engine:
        with pytest.raises(WaitCancelled):
            outcome_of(engine, method, lambda: True)
        assert outcome_of(engine, method).is_ok
