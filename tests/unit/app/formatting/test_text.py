"""What is shown: control characters made visible, figures with units, answers with their denominators."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from app.formatting import figures, progress_line
from app.formatting.figures import DASH
from app.formatting.sanitise import visible
from app.storage.answer_record import as_json, kept_summaries, kept_summary, stats_lines, summary
from engine.events import CANCELLED, LABEL_APPROX, STOP, LoadProgress, PrefillProgress
from tests.functional.app.fake_engine import counters, stats


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[31mred\x1b]0;title\x07", "␛[31mred␛]0;title␇"),
        ("a\r\nb\rc", "a\nb␍c"),
        ("\x00\x7f", "␀␡"),
        ("\x9b31m", "‹9B›31m"),
        ("user\u202etxt", "user‹202E›txt"),
        ("\ud800", "\ufffd"),
        ("[bold]not markup[/bold] 🙂", "[bold]not markup[/bold] 🙂"),
    ],
)
def test_control_characters_are_shown_not_obeyed(given: str, shown: str) -> None:
    assert visible(given) == shown


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (figures.count(1184), "1184"),
        (figures.count(123_456), "123.5k"),
        (figures.count(3_400_000), "3.4M"),
        (figures.tokens(8192), "8.2k"),
        (figures.tokens(2000), "2k"),
        (figures.percent(1, 0), "–"),
        (figures.percent(None), "–"),
        (figures.percent(870, 870), "100 %"),
        (figures.percent(99_999, 100_000), "99.9 %"),
        (figures.percent(5, 1000), "0.5 %"),
        (figures.whole_percent(None), "–"),
        (figures.whole_percent(0.0), "0 %"),
        (figures.whole_percent(0.001), "<1 %"),
        (figures.whole_percent(0.0249), "2 %"),
        (figures.whole_percent(0.851), "85 %"),
        (figures.share(812, 870), "93 % (812 of 870)"),
        (figures.share(0, 0), "–"),
        (figures.milliseconds(None), "–"),
        (figures.milliseconds(214.3), "214 ms"),
        (figures.milliseconds(1900), "1.9 s"),
        (figures.bandwidth(1.31e9), "1.3 GB/s"),
        (figures.bandwidth(None), "–"),
        (figures.bar(1, 2, 4), "▰▰▱▱"),
        (figures.bar(1, 0, 4), "▱▱▱▱"),
        (figures.sparkline([0, 5, None, 10], 8), "▁▅ █"),
        (figures.sparkline([], 8), ""),
        (figures.sparkline([0.0, 0.0], 8), "▁▁"),
    ],
)
def test_figures(written: str, expected: str) -> None:
    assert written == expected


def test_progress_lines() -> None:
    loading = LoadProgress("reading weights", 512, 1024)
    assert progress_line.loading(loading) == "reading weights  ▰▰▰▰▰▰▱▱▱▱▱▱  512 B of 1.0 KiB"
    assert progress_line.loading(LoadProgress("importing torch", 0, 0)) == "importing torch …"
    assert "3 of 9 files" in progress_line.loading(LoadProgress("carving", 3, 9, "files"))
    prefill = progress_line.prefill(PrefillProgress(1, 64, 128, 32, "the template changed"))
    assert "64 of 128 tok, 32 cached (the template changed)" in prefill


def test_the_line_below_an_answer() -> None:
    line = summary(stats(100), STOP, top_k=2)
    assert line.startswith("100 tok · TTFT 412 ms · 48 ms/tok · 20.7 tok/s · hit 91 % (54")
    assert line.endswith("of 6000) · exact")


def test_an_approximate_answer_says_how_much() -> None:
    approximate = stats(100, label=LABEL_APPROX, counted=counters(100, is_approximate=True))
    line = summary(approximate, CANCELLED, top_k=2)
    assert line.startswith("stopped · 100 tok")
    assert line.endswith("approximate: 120 of 6000 substituted (0.7 % of the routing weight)")


def test_the_long_form_names_every_count_with_its_whole() -> None:
    text = "\n".join(stats_lines(stats(100), STOP, top_k=2))
    for word in (
        "TTFT",
        "TPOT",
        "resident hits",
        "prefetched hits",
        "late",
        "cold",
        "capacity",
        "substituted",
        "moved",
    ):
        assert word in text
    assert "6000 routed" in text
    assert "of 6000" in text


def test_an_answer_without_decode_shows_dashes() -> None:
    text = "\n".join(stats_lines(stats(0), STOP, top_k=2))
    assert "– resident hits" in text


def test_an_answer_without_a_second_token_has_no_wait_for_the_link() -> None:
    for link_wait_ms in (None, 0.0):
        alone = replace(stats(1), tpot_ms=None, link_wait_ms=link_wait_ms)
        assert f"{DASH} waited for it" in "\n".join(stats_lines(alone, STOP, top_k=2))
    assert "0.0 ms waited for it" in "\n".join(stats_lines(replace(stats(9), link_wait_ms=0.0), STOP, top_k=2))


def test_the_parts_of_a_continued_answer_are_numbered() -> None:
    first, second = as_json(stats(8), CANCELLED), as_json(stats(5), STOP)
    assert kept_summaries(first) == [kept_summary(first)]
    told = kept_summaries({**second, "before": first})
    assert told == [f"part 1 of 2: {kept_summary(first)}", f"part 2 of 2: {kept_summary(second)}"]


def test_the_line_below_a_kept_answer_is_the_one_it_had() -> None:
    given = replace(stats(100, label=LABEL_APPROX, counted=counters(100, is_approximate=True)), thinking_tok=12)
    kept = json.loads(json.dumps(as_json(given, CANCELLED, domain="maths", model="demo", top_k=2)))
    assert (kept["domain"], kept["model"]) == ("maths", "demo")
    assert kept_summary(kept) == summary(given, CANCELLED, top_k=2)
    assert "100 tok (12 thinking)" in kept_summary(kept)


@pytest.mark.parametrize("kept", [None, {}, {"counters": 3}, {"counters": {}, "new_tok": "many"}])
def test_a_record_of_unknown_shape_has_no_line(kept: dict[str, object] | None) -> None:
    assert kept_summary(kept) == ""


def test_stats_tell_thinking_and_what_was_left_out() -> None:
    told = "\n".join(
        stats_lines(
            replace(stats(100), thinking_tok=12, thinking_ms=3100.0, left_out_messages=4, times_the_limit=1.42), STOP, 2
        )
    )
    assert "12 of them thinking (3.1 s)" in told
    assert "the oldest 4 messages left out" in told
    assert "1.4x the limit" in told
