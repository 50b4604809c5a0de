"""How a model's experts are predicted, in words, and before its weights are read."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from engine.lookahead.form_trial import form_of_router
from engine.lookahead.forms import PredictionForm, Way, describe_forms
from tests.unit.engine.commands.tiny_bench import TinyBench
from tests.unit.engine.conftest import TinyFolder
from tests.wide_routers import WIDE, make_router


def test_in_words() -> None:
    short, slow = PredictionForm(Way.SHORT, 0.02), PredictionForm(Way.ASKED, reason="odd")
    none = PredictionForm(Way.NONE, reason="hashed")
    assert describe_forms([]) == "no layer to predict"
    assert describe_forms([PredictionForm(Way.SHORT)] * 3) == "3 of 3 layers predictable"
    assert (
        describe_forms([short, PredictionForm(Way.SHORT)]) == "2 of 2 layers predictable, near-ties in 1.0% of choices"
    )
    assert describe_forms([slow, slow, none]) == (
        "2 of 3 layers predictable, 2 slowly, by the router itself (odd), 1 not (hashed)"
    )


def test_on_screen(tiny_folder: TinyFolder) -> None:
    with TinyBench(tiny_folder("deepseek_v3")) as bench:
        ready = bench.session.ready()
    assert dict(ready.effective)["prefetch"].endswith("1 of 1 layers predictable")


@pytest.mark.parametrize("name", WIDE)
def test_a_router_on_the_meta_device_tells_what_it_will_tell_with_weights(name: str) -> None:
    settings = WIDE[name].settings
    router = make_router(WIDE[name], torch.bfloat16, 0)
    shape = settings["num_experts"], settings["hidden_size"], torch.bfloat16
    with_weights, told = form_of_router(router, *shape), form_of_router(router.to("meta"), *shape)
    assert with_weights.way is told.way is Way.SHORT
    assert max(with_weights.near_tie_rate, told.near_tie_rate) <= 0.15
    assert all(value.is_meta for value in router.parameters())


class Hashed(nn.Linear):
    def forward(self, hidden: torch.Tensor, input_ids: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(hidden)


class Broken(nn.Linear):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        raise KeyError("never alone")


def test_what_cannot_be_predicted_is_told_with_the_reason() -> None:
    shape = 8, 16, torch.float32
    assert form_of_router(None, *shape).way is Way.NONE
    assert "every token" in form_of_router(Hashed(16, 8), *shape).reason
    assert "KeyError" in form_of_router(Broken(16, 8), *shape).reason
