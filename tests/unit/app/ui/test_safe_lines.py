"""The last step before the terminal takes out what a widget forgot to make visible."""

from __future__ import annotations

from pathlib import Path

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.app import App, ComposeResult
from textual.color import Color
from textual.content import Content
from textual.widgets import Static

from app.formatting.sanitise import is_obeyed, whole, without_obeyed
from app.storage.records import ASSISTANT, USER, ChatPlace, ChatRecord, TurnRecord
from app.storage.store import ChatStore
from app.ui.safe_lines import SafeLines
from tests.functional.app.conftest import Stage
from tests.functional.app.fake_engine import ObedientEngine

HOSTILE = "a\x1b]52;c;eA==\x07b\x9bc\u202ed\u061ce\x00f\x7fg"


def test_the_line_stays_as_wide_and_commands_nothing() -> None:
    style = Style(bold=True)
    segments = SafeLines().apply([Segment(HOSTILE, style), Segment("plain")], Color(0, 0, 0))
    assert segments == [Segment("a]52;c;eA==bcdefg", style), Segment("plain")]
    assert sum(segment.cell_length for segment in segments) == cell_len(HOSTILE) + 5
    assert without_obeyed("\ud800") == "\ufffd"


def test_safe_lines_are_not_copied() -> None:
    segments = [Segment("日本 🙂 é"), Segment("x")]
    assert SafeLines().apply(segments, Color(0, 0, 0)) is segments


def test_what_is_not_text_becomes_text() -> None:
    assert whole("caf\udce9 é 🙂 \ud800") == "caf\ufffd é 🙂 \ufffd"


async def test_a_chat_that_was_imported_commands_no_terminal(tmp_path: Path) -> None:
    stage = Stage(tmp_path, ObedientEngine)
    store = ChatStore(stage.db_path)
    chat = ChatRecord(HOSTILE, HOSTILE, HOSTILE, chat_id="c0ffee", title=HOSTILE)
    turns = [TurnRecord("c0ffee", 0, USER, HOSTILE), TurnRecord("c0ffee", 1, ASSISTANT, HOSTILE, markers=[HOSTILE])]
    store.save_whole(chat, turns)
    store.close()
    async with stage.app.run_test(size=(100, 30)) as stage.pilot:
        await stage.open_chat()
        stage.app.notify(HOSTILE, markup=False)
        await stage.app.open_place(ChatPlace("c0ffee"))
        await stage.until(lambda: "]52;c;" in _drawn(stage.app))
        await stage.pilot.press("ctrl+r")
        await stage.until(lambda: "Search" in _drawn(stage.app) or "]52;c;" in _drawn(stage.app))
        assert not any(is_obeyed(line) for line in _drawn(stage.app).split("\n"))


def _drawn(app: App[None]) -> str:
    """What is sent to the terminal, without the style codes."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


async def test_a_widget_that_forgot_commands_no_terminal() -> None:
    class Forgetful(App[None]):
        def get_line_filters(self) -> list[object]:  # type: ignore[override]
            return [*super().get_line_filters(), SafeLines()]

        def compose(self) -> ComposeResult:
            yield Static(Content(HOSTILE))

    app = Forgetful()
    async with app.run_test():
        widget = app.query_one(Static)
        lines = [strip.text for strip in app.screen._compositor.render_strips()]
        assert lines[0].startswith("a]52;c;eA==bcdefg")
        assert widget.region.width
        assert not any(is_obeyed(line) for line in lines)
