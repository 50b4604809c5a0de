"""Answers of a session as a chat needs them: thinking, continued, trimmed, and where their time went."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.api import Message, Submit
from engine.chat.thinking_marks import ThinkingFormat
from engine.config import SamplingConfig
from engine.errors import CheckpointError, ConfigError, ContextFullError, UnsupportedModelError
from engine.events import CANCELLED, STOP, Event, LoadProgress, PrefillProgress, TextDelta, TurnEnded
from engine.process.session import Session
from tests.architectures.tiny import TOP_K
from tests.unit.engine.commands.tiny_bench import TinyBench, config_of, words
from tests.unit.engine.conftest import TinyFolder

TEMPLATE = (
    "{% for m in messages %}{{ 'w9' if m.role == 'user' else 'w8' }} {{ m.content }} {% endfor %}"
    "{% if add_generation_prompt %}w8 {% if enable_thinking %}<think> {% endif %}{% endif %}"
)
QUESTION = words(0, 6)
NUM_LAYERS = 3


def with_template(folder: Path, target: Path, template: str = TEMPLATE) -> Path:
    """A copy of a checkpoint with a chat template."""
    shutil.copytree(folder, target)
    (target / "chat_template.jinja").write_text(template)
    return target


@pytest.fixture
def bench(tiny_folder: TinyFolder, tmp_path: Path) -> Iterator[TinyBench]:
    with TinyBench(with_template(tiny_folder("qwen3_moe"), tmp_path / "model")) as bench:
        yield bench


def answer(bench: TinyBench, *messages: Message, num_tok: int = 8, stop: tuple[str, ...] = (), **how: Any) -> TurnEnded:
    sampling = SamplingConfig(temperature=0.0, max_new_tok=num_tok, stop=stop)
    bench.session.answer(Submit(len(bench.events), messages, sampling, **how))
    end = bench.events[-1]
    assert isinstance(end, TurnEnded)
    return end


def user(text: str) -> Message:
    return Message("user", text)


def assistant(text: str, thinking: str = "") -> Message:
    return Message("assistant", text, thinking)


# -- continued ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_first", [1, 5])
def test_a_continued_answer_is_the_one_that_was_never_stopped(bench: TinyBench, num_first: int) -> None:
    whole = answer(bench, user(QUESTION), num_tok=12)
    ids = bench.ids
    first = answer(bench, user(QUESTION), num_tok=num_first)
    rest = answer(bench, user(QUESTION), assistant(first.text), num_tok=12 - num_first, continues=True)
    assert first.text + rest.text == whole.text
    assert bench.ids == ids
    assert rest.stats.reused_tok == first.stats.prompt_tok + num_first - 1
    assert rest.stats.prompt_tok == first.stats.prompt_tok + num_first
    assert rest.stats.counters.routed == rest.stats.new_tok * NUM_LAYERS * TOP_K


def test_continued_again_and_again(bench: TinyBench) -> None:
    whole, text = answer(bench, user(QUESTION), num_tok=9).text, ""
    for _ in range(3):
        messages = (user(QUESTION), *([assistant(text)] if text else []))
        text += answer(bench, *messages, num_tok=3, continues=bool(text)).text
    assert text == whole


def test_another_text_than_was_written_is_continued_by_the_template(bench: TinyBench) -> None:
    answer(bench, user(QUESTION))
    end = answer(bench, user(QUESTION), assistant("w20 w21"), num_tok=2, continues=True)
    assert end.stats.prompt_tok == 1 + 6 + 1 + 2
    assert bench.ids[-3:-1] == [20, 21]


def test_a_stopped_answer_is_continued_where_it_was_stopped(bench: TinyBench) -> None:
    whole = answer(bench, user(QUESTION), num_tok=12)
    bench.on_event = lambda event: setattr(bench, "is_cancelled", lambda: isinstance(event, TextDelta))
    first = answer(bench, user(QUESTION), num_tok=12)
    bench.on_event = lambda event: None
    bench.is_cancelled = lambda: False
    assert first.reason == CANCELLED
    rest = answer(bench, user(QUESTION), assistant(first.text), num_tok=12 - first.stats.new_tok, continues=True)
    assert first.text + rest.text == whole.text


def test_there_must_be_an_answer_to_continue(bench: TinyBench) -> None:
    with pytest.raises(ConfigError, match="no answer to continue"):
        answer(bench, user(QUESTION), continues=True)


# -- trimmed -----------------------------------------------------------------------------------------------------------


def test_the_oldest_turns_are_left_out_and_that_is_said(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    folder = with_template(tiny_folder("qwen3_moe"), tmp_path / "model")
    turns = [message for i in range(4) for message in (user(words(i, 12)), assistant(words(i, 12)))]
    with TinyBench(folder, context_tok=96) as bench:
        messages = (*turns, user(QUESTION))
        with pytest.raises(ContextFullError) as caught:
            answer(bench, *messages, num_tok=40)
        assert (caught.value.prompt_tok, caught.value.context_tok) == (112, 96)
        end = answer(bench, *messages, num_tok=40, trims_oldest=True)
        assert end.stats.left_out_messages == 6
        assert end.stats.prompt_tok == 112 - 6 * 13
        progress = [event for event in bench.events if isinstance(event, PrefillProgress)]
        assert {event.left_out_messages for event in progress} == {6}
        longer = (*messages, assistant("w50 w51"), user("w60"))
        again = answer(bench, *longer, num_tok=40, trims_oldest=True).stats
        assert again.left_out_messages == 6
        assert again.reused_tok >= end.stats.prompt_tok - 1
        assert answer(bench, user(QUESTION), trims_oldest=True).stats.left_out_messages == 0


# -- thinking ----------------------------------------------------------------------------------------------------------


def test_a_template_without_a_switch_offers_no_choice(tiny_folder: TinyFolder) -> None:
    with TinyBench(tiny_folder("qwen3_moe")) as bench:
        assert bench.session.ready().thinking_choices == ()
        with pytest.raises(ConfigError, match="cannot be set to 'on'"):
            answer(bench, user(QUESTION), thinking="on")


@pytest.fixture
def thinker(tiny_folder: TinyFolder, tmp_path: Path) -> Iterator[TinyBench]:
    """A model whose template opens the thinking, and whose thinking ends with a word that it is known to write."""
    source = tiny_folder("qwen3_moe")
    with TinyBench(with_template(source, tmp_path / "probe")) as probe:
        text = answer(probe, user(QUESTION), num_tok=12, thinking="on").text.split()
    closing = next(word for number, word in enumerate(text) if number >= 2 and word not in text[:number])
    folder = with_template(source, tmp_path / "model", TEMPLATE.replace("<think>", "<pad>"))
    with TinyBench(folder) as bench:
        bench.session._prompts._marks = ThinkingFormat("<pad>", closing, ("<pad>", closing))
        yield bench


def test_thinking_is_told_from_the_answer(thinker: TinyBench) -> None:
    assert thinker.session.ready().thinking_choices == ("off", "on")
    end = answer(thinker, user(QUESTION), num_tok=12, thinking="on")
    deltas = [event for event in thinker.events if isinstance(event, TextDelta)]
    assert "".join(event.text for event in deltas if event.is_thinking) == end.thinking
    assert "".join(event.text for event in deltas if not event.is_thinking) == end.text
    assert end.thinking
    assert end.text
    num_thinking = len(end.thinking.split())
    assert end.stats.thinking_tok == num_thinking + 1
    assert end.stats.new_tok == 12
    assert end.stats.thinking_ms is not None
    assert 0 < end.stats.thinking_ms < end.stats.ttft_ms + 12 * end.stats.tpot_ms
    plain = answer(thinker, user(QUESTION), num_tok=12, thinking="off")
    assert (plain.thinking, plain.stats.thinking_tok, plain.stats.thinking_ms) == ("", 0, None)


@pytest.mark.parametrize("sends_thinking", [True, False])
def test_the_cache_is_reused_whether_or_not_thinking_is_sent_back(thinker: TinyBench, sends_thinking: bool) -> None:
    first = answer(thinker, user(QUESTION), num_tok=12, thinking="on")
    back = assistant(first.text, first.thinking if sends_thinking else "")
    second = answer(thinker, user(QUESTION), back, user(words(60, 4)), thinking="on")
    assert second.stats.reused_tok == first.stats.prompt_tok - 1


def test_thinking_that_was_stopped_goes_on_as_thinking(thinker: TinyBench) -> None:
    whole = answer(thinker, user(QUESTION), num_tok=12, thinking="on")
    first = answer(thinker, user(QUESTION), num_tok=2, thinking="on")
    assert (first.text, bool(first.thinking)) == ("", True)
    rest = answer(thinker, user(QUESTION), assistant("", first.thinking), num_tok=10, thinking="on", continues=True)
    assert first.thinking + rest.thinking == whole.thinking
    assert rest.text == whole.text


# -- where the time went -----------------------------------------------------------------------------------------------


def test_the_shares_of_decode_time_add_up(bench: TinyBench) -> None:
    end = answer(bench, user(QUESTION), num_tok=12)
    stats, timing = end.stats, bench.snapshots[-1].timing
    assert stats.compute_ms is not None
    assert stats.overhead_ms is not None
    assert stats.tpot_ms is not None
    parts = (stats.compute_ms, stats.link_wait_ms, stats.overhead_ms)
    assert all(part >= 0 for part in parts)
    assert sum(parts) == pytest.approx(11 * stats.tpot_ms)
    assert timing.compute_rate is not None
    assert timing.link_wait_rate is not None
    assert timing.overhead_rate is not None
    assert timing.compute_rate + timing.link_wait_rate + timing.overhead_rate == pytest.approx(1)


def test_one_token_has_no_decode_time(bench: TinyBench) -> None:
    stats = answer(bench, user(QUESTION), num_tok=1).stats
    assert (stats.compute_ms, stats.overhead_ms, stats.link_wait_ms) == (None, None, None)


def test_a_wait_for_the_link_is_no_compute(tiny_folder: TinyFolder) -> None:
    with TinyBench(tiny_folder("qwen3_moe"), link_bytes_per_s=2e6, prefetch="none") as bench:
        stats = bench.ask(QUESTION, max_new_tok=6).end.stats
        assert stats.compute_ms is not None
        assert stats.tpot_ms is not None
        assert stats.link_wait_ms is not None
        assert stats.link_wait_ms > stats.compute_ms


def test_a_stop_string_is_not_continued_from_its_ids(bench: TinyBench) -> None:
    text = answer(bench, user(QUESTION), num_tok=6).text
    stop = text.split()[3]
    first = answer(bench, user(QUESTION), num_tok=6, stop=(stop,))
    assert first.reason == STOP
    rest = answer(bench, user(QUESTION), assistant(first.text.strip()), num_tok=2, continues=True)
    assert rest.stats.prompt_tok == first.stats.prompt_tok + 3


# -- whatever a model folder brings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"), [("top_k", "50"), ("repetition_penalty", 0), ("eos_token_id", "</s>"), ("top_p", [0.9])]
)
def test_settings_of_the_model_that_make_no_sense_are_named_at_load(
    tiny_folder: TinyFolder, tmp_path: Path, key: str, value: Any
) -> None:
    folder = with_template(tiny_folder("qwen3_moe"), tmp_path / "model")
    (folder / "generation_config.json").write_text(json.dumps({key: value}))
    with pytest.raises(CheckpointError, match=r"generation_config\.json"), TinyBench(folder):
        pass


def test_settings_of_the_model_that_are_off_are_off(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    folder = with_template(tiny_folder("qwen3_moe"), tmp_path / "model")
    off = {"do_sample": True, "top_k": -1, "top_p": 1.1, "min_p": 0, "repetition_penalty": 1, "eos_token_id": [[1]]}
    (folder / "generation_config.json").write_text(json.dumps(off))
    with TinyBench(folder) as bench:
        bench.session.answer(Submit(1, (user(QUESTION),), SamplingConfig(max_new_tok=3)))
        assert isinstance(bench.events[-1], TurnEnded)


def test_a_template_that_drops_the_question_is_refused_before_weights_are_read(
    tiny_folder: TinyFolder, tmp_path: Path
) -> None:
    folder = with_template(tiny_folder("qwen3_moe"), tmp_path / "model", "w8 {{ messages[0].text }}")
    told: list[Event] = []
    with pytest.raises(UnsupportedModelError, match=r"chat_template\.jinja leaves out"):
        Session(config_of(folder), told.append, lambda snapshot: None, lambda: False)
    assert "weights" not in {event.stage for event in told if isinstance(event, LoadProgress)}


def test_a_template_wants_parts(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    parts = TEMPLATE.replace("{{ m.content }}", "{% for part in m.content %}{{ part.text }}{% endfor %}")
    with TinyBench(with_template(tiny_folder("qwen3_moe"), tmp_path / "model", parts)) as bench:
        assert answer(bench, user(QUESTION)).stats.prompt_tok == 1 + 6 + 1


def test_a_token_that_the_model_does_not_have_is_named(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    folder = with_template(tiny_folder("qwen3_moe"), tmp_path / "model", "{{ bos_token }} " + TEMPLATE)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"bos_token": "<of another model>"}))
    with TinyBench(folder) as bench:
        with pytest.raises(CheckpointError, match="'<of another model>'") as caught:
            answer(bench, user(QUESTION))
        assert "vocab_size" in caught.value.message
