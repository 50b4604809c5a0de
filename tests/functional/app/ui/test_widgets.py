"""Widgets in an app of their own: the heatmap's drawing, finished answers, and how many widgets a chat takes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from markdown_it import MarkdownIt
from pygments.lexer import Lexer  # type: ignore[import-untyped]
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from textual.app import App, ComposeResult
from textual.geometry import Region

from app.chat.exchange import Exchange
from app.formatting.markdown import plain_text
from app.storage.records import ASSISTANT, COMPLETE, PARTIAL, USER, TurnRecord
from app.ui.markdown_style import FinishedMarkdown
from app.ui.themes import DARK, load_themes
from app.ui.widgets.answer_text import FinishedAnswer, LiveAnswer
from app.ui.widgets.memory_bar import MemoryBar
from app.ui.widgets.residency_map import GLYPHS, ResidencyMap
from app.ui.widgets.text_lines import TextLines
from app.ui.widgets.thinking_block import ThinkingBlock
from app.ui.widgets.transcript import Transcript
from engine.config import APPROX
from engine.events import HOST, IN_USE
from tests.functional.app.fake_engine import snapshot


class Bench(App[None]):
    """One widget in the app's colours."""

    CSS = "ResidencyMap { height: 1fr; } MemoryBar, TextLines, AnswerTurn { height: auto; }"

    def __init__(self, widget: ResidencyMap | MemoryBar | TextLines | Transcript) -> None:
        super().__init__()
        self._widget = widget
        for theme in load_themes():
            self.register_theme(theme)
        self.theme = DARK

    def compose(self) -> ComposeResult:
        yield self._widget


def _lines(widget: ResidencyMap | TextLines) -> list[str]:
    return [widget.render_line(y).text.rstrip() for y in range(widget.size.height)]


async def _until(condition: Callable[[], object], pause: Callable[[], Awaitable[object]]) -> None:
    for _ in range(500):
        if condition():
            return
        await pause()
        await asyncio.sleep(0.01)
    raise AssertionError("the condition never held")


async def test_the_map_shows_every_expert_by_glyph_without_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    heat = ResidencyMap()
    async with Bench(heat).run_test(size=(40, 30)) as pilot:
        state = snapshot(3, mode=APPROX)
        heat.show(state)
        await pilot.pause()
        lines = _lines(heat)
        assert lines[29].startswith("29 ")
        for number, codes in enumerate(state.residency):
            assert lines[number][3:].replace(" ", "") == "".join(GLYPHS[code] for code in codes)


async def test_the_map_puts_two_layers_in_a_row_when_short() -> None:
    heat = ResidencyMap()
    async with Bench(heat).run_test(size=(40, 15)) as pilot:
        heat.show(snapshot(3))
        await pilot.pause()
        assert _lines(heat)[14] == "28 " + "▀" * 32
        _, upper, lower = [segment.style for segment in heat.render_line(0)][:3]
        assert upper is not None
        assert lower is not None
        assert upper.color is not None
        assert upper.bgcolor is not None


async def test_only_changed_rows_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    heat = ResidencyMap()
    async with Bench(heat).run_test(size=(40, 30)) as pilot:
        state = snapshot(3)
        heat.show(state)
        await pilot.pause()
        drawn: list[Region] = []
        monkeypatch.setattr(heat, "refresh", lambda *regions, **_: drawn.extend(regions))
        heat.show(state)
        assert drawn == []
        row = bytes(IN_USE if code == HOST else HOST for code in state.residency[7])
        changed = (*state.residency[:7], row, *state.residency[8:])
        heat.show(replace(state, residency=changed))
        assert drawn == [Region(0, 7, 40, 1)]


async def test_the_map_scales_to_a_large_model_and_follows_resizing() -> None:
    heat = ResidencyMap()
    async with Bench(heat).run_test(size=(43, 14)) as pilot:
        heat.show(snapshot(3, num_layers=94, num_experts=512))
        await pilot.pause()
        assert heat.layout_plan is not None
        assert heat.layout_plan.notes[0].startswith("1 cell = ")
        before = heat.layout_plan
        await pilot.resize_terminal(120, 50)
        await _until(lambda: heat.layout_plan != before, pilot.pause)


async def test_memory_parts_can_be_told_apart_without_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    bar = MemoryBar("memory")
    async with Bench(bar).run_test(size=(43, 10)) as pilot:
        bar.show(snapshot(2))
        await pilot.pause()
        text = bar.render().plain
        assert "731 held of 812 MiB" in text
        assert {"█", "▓", "▒", "░"} <= set(text)


async def test_a_finished_answer_keeps_its_text_and_shows_raw_html() -> None:
    answer = FinishedAnswer(
        "# Title\n\n1. one\n2. two\n\nline one\nline two\n\n```python\nx = 1\n\n\ny = 2\n```\n\n<b>tag</b>"
    )
    async with Bench(answer).run_test(size=(60, 30)) as pilot:
        await pilot.pause()
        lines = _lines(answer)
        assert lines[0] == "Title"
        assert {"1. one", "2. two", "line one", "line two", "  x = 1", "  y = 2", "<b>tag</b>"} <= set(lines)
        at = lines.index("  x = 1")
        assert lines[at : at + 4] == ["  x = 1", "", "", "  y = 2"]
        await pilot.resize_terminal(20, 30)
        await _until(lambda: answer.size.width == 20, pilot.pause)
        assert max(map(len, _lines(answer))) <= 20


EVERY_BLOCK = (
    "# Title\n\nA paragraph of *words* that is wide enough to be folded in a narrow terminal.\nAnother line.\n\n"
    "1. one\n\n2. two\n   - inner\n3. three\n\n---\n\n> quoted\n> more\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
    "```python\ndef f():\n\n    return 'x'\n```\n- a\n- b\n\n<b>tag</b>\n\nTwo\n===\n\n    indented\n\nThe end."
)


@pytest.mark.parametrize("step", [1, 7, 60])
async def test_an_answer_grows_into_what_it_is_when_finished(step: int) -> None:
    live, finished = LiveAnswer(""), FinishedAnswer(EVERY_BLOCK)
    async with Bench(finished).run_test(size=(40, 60)) as pilot:
        await pilot.app.mount(live)
        for start in range(0, len(EVERY_BLOCK), step):
            live.grow(EVERY_BLOCK[start : start + step])
        await _until(lambda: live.size.height == finished.size.height, pilot.pause)
        assert _lines(live) == _lines(finished)
        await pilot.resize_terminal(25, 60)
        await _until(lambda: live.size.width < 30 and live.size.height == finished.size.height, pilot.pause)
        assert _lines(live) == _lines(finished)


async def _work_of(growth: Callable[[int], object], counts: list[int], pause: Callable[[], Awaitable[object]]) -> None:
    """Grow 20 times; what that takes does not rise."""
    works = []
    for number in range(20):
        counts.clear()
        growth(number)
        await pause()
        works.append(sum(counts))
    assert max(works[10:]) <= 1.5 * max(works[4:10]), works


@pytest.mark.parametrize("language", ["python", "c", ""])
async def test_what_a_growth_of_code_takes_does_not_depend_on_its_length(
    language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    tokens, parse = Lexer.get_tokens, MarkdownIt.parse
    monkeypatch.setattr(Lexer, "get_tokens", lambda self, text: counts.append(text.count("\n")) or tokens(self, text))
    monkeypatch.setattr(
        MarkdownIt, "parse", lambda self, text, *env: counts.append(text.count("\n")) or parse(self, text, *env)
    )
    live = LiveAnswer(f"Here it is:\n\n```{language}\n")
    lines = "".join(f"x_{number} = {number} + 1\n" for number in range(25))
    async with Bench(live).run_test(size=(40, 30)) as pilot:
        await _work_of(lambda _: live.grow(lines), counts, pilot.pause)
        assert live.size.height == 3 + 20 * 25


@pytest.mark.parametrize("text", ["A line of thought.\n" * 20, "some words more " * 30], ids=["lines", "one line"])
async def test_what_a_growth_of_thinking_takes_does_not_depend_on_its_length(text: str) -> None:
    block, counts = ThinkingBlock(is_open=True), []
    async with Bench(block).run_test(size=(40, 30)) as pilot:
        render_lines = pilot.app.console.render_lines

        def counted(*given: Any, **named: Any) -> list[list[Segment]]:
            lines = render_lines(*given, **named)
            counts.append(len(lines))
            return lines

        pilot.app.console.render_lines = counted  # type: ignore[method-assign]
        await _work_of(lambda number: block.show(text * (number + 1), number, None, is_live=True), counts, pilot.pause)
        whole = ThinkingBlock(is_open=True)
        await pilot.app.mount(whole)
        whole.show(text * 20, 19, None, is_live=True)
        await _until(lambda: whole.size.height == block.size.height > 20, pilot.pause)
        assert _lines(block) == _lines(whole)


def test_a_long_block_is_laid_out_anew_the_more_seldom_the_longer_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    parse = MarkdownIt.parse
    monkeypatch.setattr(
        MarkdownIt, "parse", lambda self, text, *env: counts.append(text.count("\n")) or parse(self, text, *env)
    )
    live = LiveAnswer("| a | b |\n|---|---|\n")
    works = []
    for _ in range(20):
        counts.clear()
        for number in range(16):
            live.grow(f"| {number} | b |\n")
        works.append(sum(counts))
    assert max(works[10:]) <= 1.5 * max(works[4:10]), works


async def test_many_blocks_that_come_at_once_are_shown_at_once() -> None:
    paragraphs = "\n\n".join(map(str, range(100)))
    live = LiveAnswer(paragraphs)
    async with Bench(live).run_test(size=(40, 30)) as pilot:
        await _until(lambda: live.size.height == 199, pilot.pause)
        live.grow("\n\n" + paragraphs)
        await _until(lambda: live.size.height == 399, pilot.pause)


async def test_only_what_grew_of_an_answer_is_laid_out_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    laid_out: list[str] = []
    render = FinishedMarkdown.__rich_console__

    def rendered(self: FinishedMarkdown, console: Console, options: ConsoleOptions) -> RenderResult:
        laid_out.append(plain_text(self.parsed))
        return render(self, console, options)

    monkeypatch.setattr(FinishedMarkdown, "__rich_console__", rendered)
    live = LiveAnswer("first\n\nsecond\n\nthird")
    async with Bench(live).run_test(size=(40, 10)) as pilot:
        await _until(lambda: live.size.height == 5, pilot.pause)
        live.grow(" block\n")
        laid_out.clear()
        live.grow("goes on")
        assert laid_out == ["third block\ngoes on"]


async def test_a_long_chat_takes_few_widgets() -> None:
    transcript = Transcript()
    async with Bench(transcript).run_test(size=(80, 24)):
        for number in range(20):
            exchange = Exchange(TurnRecord("chat", 2 * number, USER, f"question {number}"), request_id=number)
            await transcript.add_question(exchange)
            exchange.answer = TurnRecord("chat", 2 * number + 1, ASSISTANT, state=PARTIAL)
            await transcript.add_answer(exchange)
            answer = transcript.answer_of(exchange)
            assert answer is not None
            exchange.answer.text = "# A title\n\n- a\n- b\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
            answer.show_text()
            exchange.answer.state = COMPLETE
            await answer.finish()
        assert len(transcript.query("*")) <= 20 * 5
