"""Recurrent layers: a state that stands for all tokens before it, kept at one earlier length."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.backends.ggml.kv_cache import float16_needs
from engine.backends.ggml.recurrent_states import KEPT_BEFORE_TOK
from engine.backends.offloaded_model import OffloadedModel
from offload.errors import WaitCancelled
from offload.residency.warming import fill_layers
from tests.architectures.test_ggml_exact import kl, open_model
from tests.architectures.test_ggml_families import IDS, save

KEPT = len(IDS) - KEPT_BEFORE_TOK


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OffloadedModel]:
    engine = open_model(save(tmp_path_factory.mktemp("recurrent"), "qwen3_next"), residency=1.0)
    yield engine
    engine.close()


@pytest.fixture
def decoder(model: OffloadedModel) -> Any:
    """Behind a prompt and three tokens."""
    decoder = model.decoder
    decoder.cache.reset()
    read(decoder, IDS)
    for token in (5, 6, 7):
        decoder.step(token)
    return decoder


def read(decoder: Any, prompt: list[int]) -> np.ndarray:
    logits: np.ndarray = decoder.prefill(prompt, lambda done_tok: None)
    return logits.copy()


def expect_as_anew(decoder: Any, prompt: list[int]) -> None:
    """What the cache holds gives the same answer as nothing does."""
    logits = read(decoder, prompt)
    decoder.cache.reset()
    expected = read(decoder, prompt)
    assert kl(expected, logits) < 1e-5
    assert int(expected.argmax()) == int(logits.argmax())


def test_what_was_answered_is_gone_on_with(decoder: Any) -> None:
    assert decoder.cache.keep_prefix(len(IDS) + 3)
    assert len(decoder.cache.tokens) == len(IDS) + 3
    expect_as_anew(decoder, [*IDS, 5, 6, 7, 20, 21])


@pytest.mark.parametrize("length_tok", [len(IDS) + 2, len(IDS) - 1, KEPT])
def test_a_shorter_prefix_goes_back_to_what_was_kept(decoder: Any, length_tok: int) -> None:
    assert decoder.cache.keep_prefix(length_tok)
    assert decoder.cache.tokens == IDS[:KEPT]
    expect_as_anew(decoder, [*IDS[:KEPT], 20, 21, 22])


def test_what_is_shorter_still_begins_anew(decoder: Any) -> None:
    assert not decoder.cache.keep_prefix(KEPT - 1)
    assert decoder.cache.tokens == []
    expect_as_anew(decoder, [*IDS[:3], 20, 21, 22])


def test_a_few_more_tokens_keep_the_state_before_them(decoder: Any) -> None:
    answered = [*IDS, 5, 6, 7]
    read(decoder, [*answered, 20, 21])
    assert decoder.cache.keep_prefix(len(answered) + 1)
    assert decoder.cache.tokens == answered
    expect_as_anew(decoder, [*answered, 30, 31])


@pytest.mark.parametrize("is_prompt", [False, True])
def test_a_forward_that_is_stopped_leaves_no_half_state(
    decoder: Any, is_prompt: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, num_graphs = decoder._compute.run, 0

    def stops(graph: int) -> None:
        nonlocal num_graphs
        num_graphs += 1
        if num_graphs == 3:
            raise WaitCancelled("Stopped.")
        run(graph)

    longer = [*IDS, 5, 6, 7, *range(40, 80)]
    monkeypatch.setattr(decoder._state, "goes_by_layers", True)
    monkeypatch.setattr(decoder._compute, "run", stops)
    with pytest.raises(WaitCancelled):
        read(decoder, longer) if is_prompt else decoder.step(8)
    monkeypatch.undo()
    assert decoder.cache.tokens == ([] if is_prompt else IDS[:KEPT])
    expect_as_anew(decoder, longer)


def test_a_step_in_one_graph_that_is_stopped_leaves_no_half_state(model: OffloadedModel, decoder: Any) -> None:
    def stop(layer: int) -> None:
        raise WaitCancelled("Stopped.")

    fill_layers(model.cache, lambda: False)
    assert decoder.whole.is_ready()
    kept, decoder._state.after_layer = decoder._state.after_layer, stop
    with pytest.raises(WaitCancelled):
        decoder.step(8)
    decoder._state.after_layer = kept
    assert decoder.cache.tokens == IDS[:KEPT]
    expect_as_anew(decoder, [*IDS, 5, 6, 7, *range(40, 80)])


def test_states_are_planned(model: OffloadedModel) -> None:
    spec = model.backend._spec  # type: ignore[attr-defined]
    assert spec.delta is not None
    needs = float16_needs(spec, 64)
    conv, state = 4 * spec.delta.conv_values, 4 * spec.delta.state_values
    assert needs.fixed_bytes >= 2 * len(spec.recurrent_layers) * (conv + state)
    assert needs.bytes_per_tok == 2 * sum(spec.heads.kv_widths)  # of one layer in three


def test_the_next_prompt_of_a_chat_is_read_from_where_it_differs(tmp_path: Path) -> None:
    """Through a session-like sequence: the state is kept anew with every prompt."""
    engine = open_model(save(tmp_path, "qwen3_5_moe_text"), residency=1.0)
    try:
        decoder, first = engine.decoder, list(IDS)
        read(decoder, first)
        second = [*first[: KEPT + 4], *range(60, 100)]
        assert decoder.cache.keep_prefix(KEPT + 4)
        read(decoder, second)
        third = [*second[:-KEPT_BEFORE_TOK], 7, 8, 9]
        assert decoder.cache.keep_prefix(len(second) - KEPT_BEFORE_TOK)
        assert decoder.cache.tokens == second[:-KEPT_BEFORE_TOK]
        expect_as_anew(decoder, third)
    finally:
        engine.close()
