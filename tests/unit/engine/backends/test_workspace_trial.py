"""A trial forward runs one layer of each kind, and one more."""

from __future__ import annotations

import pytest

from engine.backends.transformers.inspection import inspect_model
from engine.backends.transformers.workspace_trial import num_layers_to_try
from tests.unit.engine.conftest import TinyFolder


@pytest.mark.parametrize(
    ("name", "num_layers"),
    [
        ("qwen3_moe", 2),  # all alike
        ("deepseek_v3", 2),  # its dense layer comes before them
        ("gpt_oss", 3),  # a window, none, a window
        ("qwen3_next", 4),  # linear, linear, full
        ("jamba", 3),  # a state space, attention, a state space
    ],
)
def test_every_kind_of_layer_is_run(name: str, num_layers: int, tiny_folder: TinyFolder) -> None:
    inspected = inspect_model(tiny_folder(name))
    names = [withheld.name for withheld in inspected.stored.modules]
    assert num_layers_to_try(inspected.build().model, names) == num_layers


def test_many_kinds_of_layers_are_not_all_run(tiny_folder: TinyFolder) -> None:
    inspected = inspect_model(tiny_folder("qwen3_moe"))
    unknown = [f"experts of {letter}" for letter in "abcdefghij"]
    assert num_layers_to_try(inspected.build().model, unknown) == 6
