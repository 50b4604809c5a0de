"""Where an answer ends: every place that names an end token counts."""

from __future__ import annotations

from typing import Any

import pytest

from engine.chat.chat_template import ChatTemplate
from engine.chat.end_tokens import end_tokens
from engine.errors import CheckpointError
from engine.sampling.defaults import ModelDefaults
from tests.unit.engine.byte_tokenizer import HARMONY, HARMONY_MARKS, QWEN, with_template


def ends_of(tokenizer: Any, model: Any, *own: int, text: Any = None) -> frozenset[int]:
    """`model` and `text`: the end token of the model's configuration, and of its text model's."""
    configs = [{"eos_token_id": model}, {"eos_token_id": text}]
    return end_tokens(tokenizer, ModelDefaults(end_tokens=frozenset(own)), configs, ChatTemplate(tokenizer))


class Holder:
    """Something with an end token."""

    def __init__(self, eos_token_id: Any) -> None:
        self.eos_token_id = eos_token_id


@pytest.mark.parametrize(
    ("generation", "model", "tokenizer", "expected"),
    [
        ((1, 2), 3, 4, {1, 2, 3, 4}),
        ((), [5, [6]], None, {5, 6}),
        ((0,), -1, 0, {0}),
        ((), None, None, set()),
    ],
)
def test_every_end_token_counts(generation: Any, model: Any, tokenizer: Any, expected: set[int]) -> None:
    assert ends_of(Holder(tokenizer), model, *generation) == expected


def test_an_end_token_of_the_models_config_that_is_no_number_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"config\.json: eos_token_id is '</s>'"):
        ends_of(with_template(None), "</s>")


def test_a_nested_config_and_the_template_name_end_tokens() -> None:
    tokenizer = with_template(QWEN, special=("<|im_end|>",))
    ends = ends_of(tokenizer, None, text=7)
    assert ends == {7, tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids("<|im_end|>")}


def test_a_channel_that_ends_is_no_end_of_the_answer() -> None:
    tokenizer = with_template(HARMONY.replace("<|return|>", "<|end|>"), special=HARMONY_MARKS)
    assert ends_of(tokenizer, None) == {tokenizer.eos_token_id}
