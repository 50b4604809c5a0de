"""Which share of an architecture's layers has its experts predicted by the router's short form."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.lookahead.feeds import find_router
from engine.lookahead.form_trial import form_of_router
from engine.lookahead.forms import Way
from tests.architectures.test_matrix import open_model
from tests.architectures.tiny import SUPPORTED, save_checkpoint

HEAVY = {"gemma4_text"}
"""Tiny in name only: seconds to load."""

ALL = dict.fromkeys(SUPPORTED, (Way.SHORT, Way.SHORT, Way.SHORT))
TWO_LAYERS = {
    *("deepseek_v2", "deepseek_v3", "deepseek_v32", "glm_moe_dsa", "glm4_moe", "glm4_moe_lite", "ernie4_5_moe"),
    *("lfm2_moe", "dots1", "afmoe", "hy_v3", "exaone_moe"),
}
EXPECTED: dict[str, tuple[Way, ...]] = {
    **ALL,
    **dict.fromkeys(TWO_LAYERS, (Way.SHORT, Way.SHORT)),
    "nemotron_h": (Way.SHORT,),
    # The first layer looks its experts up by token id; the prompt's are known, the next token's are not.
    "deepseek_v4": (Way.NONE, Way.SHORT, Way.SHORT),
    # Its router normalises and scales its input itself.
    "gemma4_text": (Way.ASKED,) * 3,
}


def test_all_but_two_architectures_use_the_short_form_everywhere() -> None:
    everywhere = [name for name, ways in EXPECTED.items() if set(ways) == {Way.SHORT}]
    assert len(everywhere) == len(SUPPORTED) - 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in HEAVY else ()) for name in SUPPORTED]
)
def test_the_way_of_every_layer(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """With weights, and before any is read."""
    engine = open_model(save_checkpoint(tmp_path / name, name, dtype), compute_threads=1)
    try:
        forms = engine.lookahead.forms()
        assert tuple(form.way for form in forms) == EXPECTED[name], forms
        assert all(form.near_tie_rate <= 0.1 for form in forms)
        assert all(bool(form.reason) == (form.way is not Way.SHORT) for form in forms)
        shapes = [(layer.geometry.num_experts, engine.loaded.model) for layer in engine.layers]
        told = [
            form_of_router(
                find_router(model, withheld.name),
                num_experts,
                int(model.config.get_text_config().hidden_size),
                model.dtype,
            )
            for withheld, (num_experts, model) in zip(engine.loaded.modules, shapes, strict=True)
        ]
        assert [form.way for form in told] == [form.way for form in forms]
    finally:
        engine.close()
