"""Answers of a whole session on tiny models: reuse, cancel, modes, labels, limits, faults, and counters that add up."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.api import Message, Submit
from engine.config import APPROX, EXACT, SamplingConfig
from engine.errors import CheckpointError, ContextFullError
from engine.events import (
    CANCELLED,
    CONTEXT_FULL,
    ERROR,
    LABEL_APPROX,
    LABEL_APPROX_CONTEXT,
    LABEL_EXACT,
    LABEL_NO_TOKENS,
    LENGTH,
    RESIDENT,
    Event,
    Failed,
    ModeChanged,
    PrefillProgress,
    TextDelta,
)
from engine.process.session import Session
from offload.counters import Counters
from offload.errors import ExpertReadError
from tests.architectures.tiny import NUM_EXPERTS, TOP_K
from tests.unit.engine.commands.tiny_bench import CHUNK_TOK, TinyBench, config_of, words
from tests.unit.engine.conftest import TinyFolder

QUESTION, LONG_QUESTION = words(0, 6), words(5, 40)
NUM_LAYERS = 3


@pytest.fixture
def folder(tiny_folder: TinyFolder) -> Path:
    return tiny_folder("qwen3_moe")


def assert_add_up(counters: Counters) -> None:
    """Every routed expert was met in exactly one way."""
    met = counters.resident_hits + counters.prefetched_hits + counters.late + counters.misses + counters.substituted
    assert counters.routed == met


def assert_prefetches_add_up(bench: TinyBench) -> None:
    """Since load: what was issued and not judged yet is still on its way, or resident and unused."""
    bench.engine.link.drain()
    for layer in range(NUM_LAYERS):
        bench.engine.cache.settle(layer)
        counters = bench.engine.cache.counters(layer)
        judged = counters.prefetch_useful + counters.prefetch_late + counters.prefetch_wasted
        assert counters.prefetch_issued >= judged + counters.prefetch_cancelled
        assert 0 <= counters.prefetch_in_flight <= TOP_K + 1


# -- an answer ---------------------------------------------------------------------------------------------------------


def test_an_answer_in_order(folder: Path) -> None:
    with TinyBench(folder) as bench:
        answer = bench.ask(LONG_QUESTION, max_new_tok=8)
        stats = answer.end.stats
        assert (answer.end.reason, stats.new_tok, stats.label) == (LENGTH, 8, LABEL_EXACT)
        assert answer.streamed == answer.end.text
        done = [event.done_tok for event in answer.prefill]
        assert done == sorted(done)
        assert [tok for tok in done if tok in (0, 16, 32, 42)] == [0, 16, 32, 42]
        assert {event.total_tok for event in answer.prefill} == {stats.prompt_tok} == {42}
        assert isinstance(answer.events[0], PrefillProgress)
        assert len(bench.ids) == 42 + 7
        assert stats.counters.routed == 7 * NUM_LAYERS * TOP_K
        assert stats.prefill_bytes + stats.decode_bytes == stats.counters.bytes_loaded > 0
        assert stats.ttft_ms is not None
        assert stats.tpot_ms is not None
        assert_add_up(stats.counters)
        assert [bench.snapshots[0].phase, bench.snapshots[-1].phase] == ["prefill", "idle"]
        assert bench.snapshots[-1].turn_counters == stats.counters


def test_counters_add_up_after_every_turn_and_layer(folder: Path) -> None:
    with TinyBench(folder) as bench:
        total = bench.engine.cache.total_counters()
        for number in range(5):
            stats = bench.ask(words(number, 5 + number), max_new_tok=10).end.stats
            assert_add_up(stats.counters)
            assert stats.counters == bench.engine.cache.total_counters() - total
            total = bench.engine.cache.total_counters()
            assert_add_up(total)
            assert_prefetches_add_up(bench)
            for layer in range(NUM_LAYERS):
                assert_add_up(bench.engine.cache.counters(layer))
        assert total.misses > 0
        assert total.routed == 5 * 9 * NUM_LAYERS * TOP_K


# -- the KV cache over turns -------------------------------------------------------------------------------------------


@functools.cache
def cold_ids(folder: Path, *turns: str) -> list[int]:
    """What a session that has seen nothing comes to."""
    with TinyBench(folder) as bench:
        bench.ask(*turns)
        return bench.ids


@pytest.mark.parametrize("name", ["qwen3_moe", "gpt_oss", "deepseek_v3"])
def test_the_second_turn_reuses_the_first(tiny_folder: TinyFolder, name: str) -> None:
    folder = tiny_folder(name)
    with TinyBench(folder) as bench:
        first = bench.ask(QUESTION)
        second = bench.ask(QUESTION, first.end.text, words(60, 4))
        assert second.end.stats.reused_tok >= first.end.stats.prompt_tok
        assert second.prefill[0].done_tok == second.end.stats.reused_tok
        assert not second.prefill[0].note
        assert bench.ids == cold_ids(folder, QUESTION, first.end.text, words(60, 4))


def test_another_question_keeps_only_what_is_common(folder: Path) -> None:
    with TinyBench(folder) as bench:
        bench.ask(words(0, 20))
        second = bench.ask(words(0, 10) + " " + words(50, 10))
        assert second.end.stats.reused_tok == 11
        assert bench.ids == cold_ids(folder, words(0, 10) + " " + words(50, 10))
        assert bench.ask(words(90, 3)).end.stats.reused_tok == 1


@pytest.mark.parametrize("name", ["qwen3_next", "minimax", "jamba"])
def test_a_cache_that_cannot_be_cropped_is_computed_anew_and_says_so(tiny_folder: TinyFolder, name: str) -> None:
    folder = tiny_folder(name)
    with TinyBench(folder) as bench:
        bench.ask(words(0, 20))
        second = bench.ask(words(0, 10) + " " + words(50, 10))
        assert second.end.stats.reused_tok == 0
        assert all("cannot be cropped" in event.note for event in second.prefill)
        assert bench.ids == cold_ids(folder, words(0, 10) + " " + words(50, 10))


@pytest.mark.parametrize("name", ["qwen3_next", "minimax"])
def test_a_cache_that_cannot_be_cropped_is_still_continued(tiny_folder: TinyFolder, name: str) -> None:
    with TinyBench(tiny_folder(name)) as bench:
        first = bench.ask(QUESTION, max_new_tok=1)
        second = bench.ask(QUESTION + " " + words(70, 3), max_new_tok=1)
        assert first.end.stats.prompt_tok == 8
        assert second.end.stats.reused_tok in (0, 7)  # 0: the closing word of the first prompt is in the way


# -- cancel ------------------------------------------------------------------------------------------------------------


def cancel_after(bench: TinyBench, num_asked: int) -> None:
    """Cancel from the n-th time on that the engine asks; it asks after every layer."""
    asked = 0

    def is_cancelled() -> bool:
        nonlocal asked
        asked += 1
        return asked > num_asked

    bench.is_cancelled = is_cancelled


@pytest.mark.parametrize(
    ("name", "num_asked"),
    [(name, num) for name in ("qwen3_moe", "gpt_oss", "qwen3_next") for num in (0, 2, 6, 9)] + [("deepseek_v4", 5)],
)
def test_cancelled_in_prefill(tiny_folder: TinyFolder, name: str, num_asked: int) -> None:
    folder = tiny_folder(name)
    with TinyBench(folder) as bench:
        cancel_after(bench, num_asked)
        answer = bench.ask(LONG_QUESTION)
        assert (answer.end.reason, answer.end.text, answer.end.stats.new_tok) == (CANCELLED, "", 0)
        assert answer.end.stats.ttft_ms is None
        assert answer.end.stats.label == LABEL_NO_TOKENS
        assert len(bench.ids) < 42
        bench.is_cancelled = lambda: False
        bench.ask(LONG_QUESTION)
        assert bench.ids == cold_ids(folder, LONG_QUESTION)


@pytest.mark.parametrize("name", ["qwen3_moe", "gpt_oss", "qwen3_next"])
@pytest.mark.parametrize("at_layer", [0, 1, 2])
def test_cancelled_in_decode(tiny_folder: TinyFolder, name: str, at_layer: int) -> None:
    """The partial answer is kept, and the cache is as it was before the token that was broken off."""
    folder = tiny_folder(name)
    with TinyBench(folder) as bench:

        def listen(event: Event) -> None:
            if isinstance(event, TextDelta) and event.num_tok >= 3:
                cancel_after(bench, 1 + at_layer)

        bench.on_event = listen
        answer = bench.ask(QUESTION, max_new_tok=20)
        assert answer.end.reason == CANCELLED
        assert answer.end.text == answer.streamed != ""
        assert answer.end.stats.new_tok == 3
        assert_add_up(answer.end.stats.counters)
        bench.is_cancelled, bench.on_event = lambda: False, lambda event: None
        bench.ask(QUESTION)
        assert bench.ids == cold_ids(folder, QUESTION)


def test_cancelled_while_waiting_for_the_link(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with TinyBench(folder) as bench:
        store = bench.engine.loaded.store
        read, gate, is_waiting = store.read_into, threading.Event(), threading.Event()

        def gated(layer: int, expert: int, destination: memoryview) -> int:
            is_waiting.set()
            assert gate.wait(30)
            return read(layer, expert, destination)

        monkeypatch.setattr(store, "read_into", gated)
        bench.is_cancelled = is_waiting.is_set
        assert bench.ask(LONG_QUESTION).end.reason == CANCELLED
        bench.is_cancelled = lambda: False
        gate.set()
        bench.ask(LONG_QUESTION)
        assert bench.ids == cold_ids(folder, LONG_QUESTION)


# -- modes and labels --------------------------------------------------------------------------------------------------


def test_a_mode_change_in_mid_answer(folder: Path) -> None:
    with TinyBench(folder, alpha=100.0) as bench:

        def listen(event: Event) -> None:
            if isinstance(event, TextDelta) and event.num_tok >= 5:
                bench.wanted_mode = APPROX

        bench.on_event = listen
        answer = bench.ask(QUESTION, max_new_tok=16)
        (change,) = [event for event in answer.events if isinstance(event, ModeChanged)]
        assert (change.mode, change.at_tok) == (APPROX, 5)
        stats = answer.end.stats
        assert stats.label == LABEL_APPROX
        assert 0 < stats.counters.substituted <= 11 * NUM_LAYERS * TOP_K
        assert 0 < stats.counters.substituted_mass <= 11 * NUM_LAYERS
        assert_add_up(stats.counters)
        assert bench.snapshots[-1].mode == APPROX
        assert bench.snapshots[-1].is_context_approximate


def test_exact_until_the_mode_changes(folder: Path) -> None:
    """Up to the change the ids are those of EXACT."""
    exact = cold_ids(folder, QUESTION)
    with TinyBench(folder, alpha=100.0) as bench:
        bench.on_event = lambda event: setattr(
            bench, "wanted_mode", APPROX if isinstance(event, TextDelta) and event.num_tok >= 6 else bench.wanted_mode
        )
        bench.ask(QUESTION)
        assert bench.ids[: 8 + 6] == exact[: 8 + 6]


def test_labels_follow_the_context(folder: Path) -> None:
    with TinyBench(folder, alpha=100.0) as bench:
        assert bench.ask(QUESTION).end.stats.label == LABEL_EXACT
        bench.wanted_mode = APPROX
        bench.session.set_mode(APPROX)
        approximate = bench.ask(QUESTION, max_new_tok=16)
        assert approximate.end.stats.label == LABEL_APPROX
        bench.wanted_mode = EXACT
        bench.session.set_mode(EXACT)
        follow_up = bench.ask(QUESTION, approximate.end.text, words(60, 3))
        assert follow_up.end.stats.label == LABEL_APPROX_CONTEXT
        assert follow_up.end.stats.counters.substituted == 0
        assert bench.ask(words(100, 3)).end.stats.label == LABEL_EXACT
        assert bench.ids == cold_ids(folder, words(100, 3))


def test_the_same_question_again_in_exact_is_exact(folder: Path) -> None:
    """The question's own states never are approximate; only the discarded answer's were."""
    with TinyBench(folder, alpha=100.0) as bench:
        bench.wanted_mode = APPROX
        bench.session.set_mode(APPROX)
        assert bench.ask(QUESTION, max_new_tok=16).end.stats.label == LABEL_APPROX
        bench.wanted_mode = EXACT
        bench.session.set_mode(EXACT)
        again = bench.ask(QUESTION)
        assert again.end.stats.reused_tok > 0
        assert again.end.stats.label == LABEL_EXACT
        assert bench.ids == cold_ids(folder, QUESTION)


@pytest.mark.parametrize("name", ["qwen3_moe", "gpt_oss"])
def test_an_approximate_context_is_computed_anew_when_asked(tiny_folder: TinyFolder, name: str) -> None:
    with TinyBench(tiny_folder(name), alpha=100.0) as bench:
        bench.wanted_mode = APPROX
        bench.session.set_mode(APPROX)
        approximate = bench.ask(QUESTION, max_new_tok=16)
        assert approximate.end.stats.label == LABEL_APPROX
        bench.wanted_mode = EXACT
        bench.session.set_mode(EXACT)
        turns = QUESTION, approximate.end.text, words(60, 3)
        assert bench.ask(*turns).end.stats.label == LABEL_APPROX_CONTEXT
        anew = bench.ask(*turns, recomputes=True)
        assert anew.end.stats.label == LABEL_EXACT
        assert bench.ids == cold_ids(tiny_folder(name), *turns)
        assert not bench.snapshots[-1].is_context_approximate


def test_what_was_computed_exactly_is_reused_when_the_rest_is_computed_anew(folder: Path) -> None:
    with TinyBench(folder, alpha=100.0) as bench:
        first = bench.ask(QUESTION)
        second = bench.ask(QUESTION, first.end.text, words(60, 3), recomputes=True)
        assert second.end.stats.reused_tok >= first.end.stats.prompt_tok


def test_prefill_is_exact_in_approx(folder: Path) -> None:
    with TinyBench(folder, alpha=100.0, mode=APPROX) as bench:
        answer = bench.ask(LONG_QUESTION, max_new_tok=1)
        assert answer.end.stats.label == LABEL_EXACT
        assert answer.end.stats.counters.substituted == 0
        text = answer.end.text
    with TinyBench(folder) as bench:
        assert bench.ask(LONG_QUESTION, max_new_tok=1).end.text == text


@pytest.mark.parametrize("options", [{"alpha": 0.0}, {"alpha": 100.0, "residency": 1.0}], ids=str)
def test_nothing_is_substituted(folder: Path, options: dict[str, Any]) -> None:
    """With alpha 0 no selected expert is close enough; with every expert resident none is missed."""
    expected = cold_ids(folder, LONG_QUESTION)
    with TinyBench(folder, mode=APPROX, **options) as bench:
        if options.get("residency"):
            make_all_resident(bench)
        answer = bench.ask(LONG_QUESTION)
        assert answer.end.stats.counters.substituted == 0
        assert answer.end.stats.label == LABEL_EXACT
        assert bench.ids == expected


def make_all_resident(bench: TinyBench) -> None:
    for layer in range(NUM_LAYERS):
        for expert in range(NUM_EXPERTS):
            lease = bench.engine.cache.claim_free(layer, expert)
            assert lease is not None
            if lease.copy is not None:
                lease.copy.wait()
        bench.engine.cache.release(layer)


# -- the end of an answer ----------------------------------------------------------------------------------------------


def test_the_context_fills_up(folder: Path) -> None:
    with TinyBench(folder, context_tok=24) as bench:
        answer = bench.ask(words(0, 14), max_new_tok=None)
        assert answer.end.stats.prompt_tok == 16
        assert (answer.end.reason, answer.end.stats.new_tok) == (CONTEXT_FULL, 9)
        assert len(bench.ids) == 24
        assert bench.snapshots[-1].context_used_tok == bench.snapshots[-1].context_tok == 24
        assert bench.ask(words(0, 5), max_new_tok=3).end.reason == LENGTH


def test_length_asked_for_is_told_from_a_full_context(folder: Path) -> None:
    with TinyBench(folder, context_tok=24) as bench:
        assert bench.ask(words(0, 14), max_new_tok=9).end.reason == LENGTH
        assert bench.ask(words(0, 14), max_new_tok=10).end.reason == CONTEXT_FULL


def test_a_prompt_that_does_not_fit(folder: Path) -> None:
    with TinyBench(folder, context_tok=24) as bench:
        kept = bench.ask(QUESTION)
        ids = bench.ids
        for count in (22, 100):
            with pytest.raises(ContextFullError, match=f"{count + 2} tokens; the context holds 24") as caught:
                bench.ask(words(0, count))
            assert caught.value.hint
        assert bench.ids == ids
        longest = bench.ask(words(0, 21), max_new_tok=None)
        assert (longest.end.reason, longest.end.stats.new_tok) == (CONTEXT_FULL, 2)
        assert bench.ask(QUESTION).end.text == kept.end.text


# -- faults ------------------------------------------------------------------------------------------------------------


def failing_read(bench: TinyBench, monkeypatch: pytest.MonkeyPatch, at_read: int) -> Callable[[], None]:
    """From the n-th read on the disk is gone; the returned function brings it back."""
    store, count, is_broken = bench.engine.loaded.store, 0, True
    read = store.read_into

    def read_into(layer: int, expert: int, destination: memoryview) -> int:
        nonlocal count
        count += 1
        if is_broken and count >= at_read:
            destination[: len(destination) // 2] = bytes(len(destination) // 2)
            raise ExpertReadError("The disk is gone.", "Put it back.")
        return read(layer, expert, destination)

    def mend() -> None:
        nonlocal is_broken
        is_broken = False

    monkeypatch.setattr(store, "read_into", read_into)
    return mend


@pytest.mark.parametrize("name", ["qwen3_moe", "gpt_oss", "qwen3_next"])
def test_a_read_error_in_prefill_fails_the_answer_and_not_the_session(
    tiny_folder: TinyFolder, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_folder(name)
    with TinyBench(folder) as bench:
        mend = failing_read(bench, monkeypatch, 1)
        for question in (QUESTION, words(50, 30)):
            with pytest.raises(ExpertReadError, match="The disk is gone"):
                bench.ask(question, max_new_tok=60)
            bench.engine.cache.check_integrity()
            assert bench.snapshots[-1].phase == "idle"
        mend()
        answer = bench.ask(QUESTION)
        assert_add_up(answer.end.stats.counters)
        assert bench.ids == cold_ids(folder, QUESTION)


@pytest.mark.parametrize("name", ["qwen3_moe", "gpt_oss", "qwen3_next"])
def test_a_read_error_in_decode_ends_the_answer_with_what_there_is(
    tiny_folder: TinyFolder, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_folder(name)
    with TinyBench(folder) as bench:
        mend = bench.engine.cache.check_integrity

        def break_at_first_token(event: Event) -> None:
            nonlocal mend
            if isinstance(event, TextDelta):
                bench.on_event = lambda event: None
                mend = failing_read(bench, monkeypatch, 6)

        bench.on_event = break_at_first_token
        answer = bench.ask(QUESTION, max_new_tok=60)
        assert (answer.end.reason, answer.end.text) == (ERROR, answer.streamed)
        assert answer.end.text
        assert answer.end.stats.new_tok == len(answer.end.text.split())
        assert answer.end.failure is not None
        assert (answer.end.failure.message, answer.end.failure.hint) == ("The disk is gone.", "Put it back.")
        assert not [event for event in bench.events if isinstance(event, Failed)]
        assert bench.snapshots[-1].phase == "idle"
        mend()
        assert bench.ask(QUESTION).end.failure is None
        assert bench.ids == cold_ids(folder, QUESTION)


@pytest.mark.parametrize("num_good", [0, 1, 4])
def test_numbers_that_are_none_end_the_answer_with_what_there_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch, num_good: int
) -> None:
    with TinyBench(folder) as bench:
        decoder = bench.engine.decoder
        tokens = decoder.tokens

        def broken(*args: Any) -> Iterator[int]:
            yield from itertools.islice(tokens(*args), num_good)
            raise CheckpointError("The logits hold NaN.", "Fetch it again.")

        monkeypatch.setattr(decoder, "tokens", broken)
        if num_good:
            answer = bench.ask(QUESTION)
            assert (answer.end.reason, answer.end.stats.new_tok) == (ERROR, num_good)
            assert answer.end.text == answer.streamed
            assert len(answer.end.text.split()) == num_good
            assert answer.end.failure is not None
            assert answer.end.failure.message == "The logits hold NaN."
        else:
            with pytest.raises(CheckpointError, match="NaN"):
                bench.ask(QUESTION)
        assert bench.ids == []
        assert bench.snapshots[-1].phase == "idle"
        monkeypatch.undo()
        assert bench.ask(QUESTION).end.stats.label == LABEL_EXACT
        assert bench.ids == cold_ids(folder, QUESTION)


# -- prefill and the decode set ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_tok", [40, 200])
def test_prefill_evicts_nothing(folder: Path, num_tok: int) -> None:
    with TinyBench(folder, context_tok=256, prefetch="none") as bench:
        bench.ask(QUESTION, max_new_tok=20)
        before = [bench.engine.cache.residency_codes(layer) for layer in range(NUM_LAYERS)]
        assert all(codes.count(RESIDENT) == TOP_K + 1 for codes in before)
        evictions = bench.engine.cache.total_counters().evictions
        answer = bench.ask(words(30, num_tok), max_new_tok=1)
        assert answer.end.stats.prefill_bytes > 0
        assert [bench.engine.cache.residency_codes(layer) for layer in range(NUM_LAYERS)] == before
        assert bench.engine.cache.total_counters().evictions == evictions


def test_prefill_fetches_each_absent_expert_once_a_chunk(folder: Path) -> None:
    with TinyBench(folder, prefetch="none") as bench:
        counters = bench.ask(LONG_QUESTION, max_new_tok=1).end.stats.counters
        num_chunks = -(-42 // CHUNK_TOK)
        assert counters.prefill_loads <= num_chunks * NUM_LAYERS * NUM_EXPERTS
        assert counters.demand_loads == counters.prefetch_loads == 0


# -- what is said ------------------------------------------------------------------------------------------------------


def test_an_emulated_link_says_so(folder: Path) -> None:
    with TinyBench(folder, link_bytes_per_s=2e9) as bench:
        ready = bench.session.ready()
        assert any("emulated at 2 GB/s" in notice for notice in ready.notices)
        assert dict(ready.effective)["link"] == "emulated 2 GB/s"
        assert bench.ask(QUESTION).end.stats.link == "emulated 2 GB/s"
        assert bench.snapshots[-1].link.emulated_bytes_per_s == 2e9


def test_what_the_session_came_to(folder: Path) -> None:
    with TinyBench(folder) as bench:
        ready = bench.session.ready()
        assert (ready.num_layers, ready.num_experts, ready.top_k) == (NUM_LAYERS, NUM_EXPERTS, TOP_K)
        effective = dict(ready.effective)
        assert effective["slots"].startswith("3 of 8 a layer")
        assert effective["context"] == f"{ready.context_tok} tokens" == "256 tokens"
        assert any("no chat template" in notice for notice in ready.notices)
        assert not any("emulated" in notice for notice in ready.notices)
        memory = bench.session.telemetry.memory()
        assert sum(num_bytes for _, num_bytes in memory.parts) <= memory.budget_bytes


def test_closing_leaves_no_thread(folder: Path) -> None:
    before = threading.active_count()
    bench = TinyBench(folder)
    assert threading.active_count() > before
    bench.ask(QUESTION)
    bench.session.close()
    bench.session.close()
    assert threading.active_count() == before


def test_cancelled_while_loading(folder: Path) -> None:
    from offload.errors import WaitCancelled

    before = threading.active_count()
    for num_asked in (0, 1, 5, 20):
        asked = 0

        def is_cancelled(limit: int = num_asked) -> bool:
            nonlocal asked
            asked += 1
            return asked > limit

        with pytest.raises(WaitCancelled):
            Session(config_of(folder), lambda event: None, lambda snapshot: None, is_cancelled)
    assert threading.active_count() <= before + 4  # the library's loader threads end on their own


def test_stop_strings_end_an_answer(folder: Path) -> None:
    with TinyBench(folder) as bench:
        text = bench.ask(QUESTION, max_new_tok=12).end.text
        stop = text.split()[3]
        answer = bench.ask(QUESTION, max_new_tok=12, stop=(stop,))
        assert answer.end.reason == "stop"
        assert answer.streamed == answer.end.text == text[: text.index(stop)]


def test_submitted_messages_may_begin_with_a_system_role(folder: Path) -> None:
    with TinyBench(folder) as bench:
        messages = (Message("system", words(3, 3)), Message("user", QUESTION))
        bench.session.answer(Submit(1, messages, SamplingConfig(temperature=0.0, max_new_tok=2)))
        assert len(bench.ids) == 13
