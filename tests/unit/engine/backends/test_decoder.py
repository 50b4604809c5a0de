"""The decode loop's promises: what the cache holds after a stop, and that no answer is made of NaN."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.backends.offloaded_model import OffloadedModel
from engine.commands.verify.verify import verify
from engine.errors import NonFiniteLogitsError
from offload.errors import WaitCancelled
from tests.architectures.test_matrix import open_model
from tests.architectures.tiny import save_checkpoint

PROMPT = [5, 9, 77, 3, 8]


class Stop:
    """Says when to stop; asked by the engine."""

    def __init__(self) -> None:
        self.is_set = False

    def __call__(self) -> bool:
        return self.is_set


@pytest.fixture
def stopped_engine(tmp_path: Path) -> tuple[OffloadedModel, Stop]:
    engine, stop = open_model(save_checkpoint(tmp_path / "model", "qwen3_moe")), Stop()
    engine.state.is_cancelled = stop
    return engine, stop


def test_a_step_that_is_stopped_in_its_last_layer_leaves_the_cache_as_it_was(
    stopped_engine: tuple[OffloadedModel, Stop],
) -> None:
    engine, stop = stopped_engine
    try:
        engine.decoder.prefill(PROMPT, lambda done_tok: None)
        expected = engine.decoder.step(11).clone()
        engine.decoder.cache.keep_prefix(len(PROMPT))

        def stop_after_the_last(layer: int) -> None:
            if layer == len(engine.layers) - 1:
                stop.is_set = True
                raise WaitCancelled("Stopped.")

        engine.state.after_layer = stop_after_the_last
        with pytest.raises(WaitCancelled):
            engine.decoder.step(11)
        assert engine.decoder.cache.tokens == PROMPT
        stop.is_set, engine.state.after_layer = False, lambda layer: None
        assert torch.equal(engine.decoder.step(11), expected)
    finally:
        engine.close()


def test_a_step_that_was_computed_is_given_whatever_was_asked_meanwhile(
    stopped_engine: tuple[OffloadedModel, Stop],
) -> None:
    """Either the token is in the cache and its logits are returned, or neither."""
    engine, stop = stopped_engine
    try:
        engine.decoder.prefill(PROMPT, lambda done_tok: None)
        stop.is_set = True
        try:
            engine.decoder.step(11)
        except WaitCancelled:
            assert engine.decoder.cache.tokens == PROMPT
        else:
            assert engine.decoder.cache.tokens == [*PROMPT, 11]
    finally:
        engine.close()


@pytest.mark.parametrize(
    "key",
    [
        "model.norm.weight",
        "model.layers.1.post_attention_layernorm.weight",
        "model.layers.1.mlp.experts.3.down_proj.weight",
        "lm_head.weight",
    ],
)
def test_a_nan_anywhere_is_an_error_and_verify_names_the_tensor(key: str, tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path / "model", "qwen3_moe")
    weights = load_file(folder / "model.safetensors")
    weights[key].view(-1)[1] = float("nan")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    engine = open_model(folder)
    try:
        with pytest.raises(NonFiniteLogitsError, match="not finite") as refusal:
            engine.greedy_ids(list(range(3, 60)), 4)  # every expert is routed to
        assert "moe-chat verify" in refusal.value.hint
        engine.cache.check_integrity()
        outcome = verify(engine, 8, lambda stage, done, total: None, lambda: False)
        assert not outcome.is_ok
        assert any(key in line for line in outcome.lines)
    finally:
        engine.close()
