"""Panels, sizes, scrolling and themes of the chat."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from app.chat.exchange import Exchange
from app.storage.records import USER, ChatRecord, TurnRecord
from app.storage.store import ChatStore
from app.ui.screens.model_picker import ModelPicker
from app.ui.screens.sheets import ConfigurationScreen, TextSheet
from app.ui.widgets.answer_text import FinishedAnswer
from app.ui.widgets.panel_column import PanelColumn
from app.ui.widgets.status_line import StatusLine
from app.ui.widgets.title_bar import TitleBar
from app.ui.widgets.transcript import Transcript
from engine.checkpoint.catalogue import ModelEntry
from engine.config import APPROX, EngineConfig
from engine.events import TextDelta
from tests.functional.app.conftest import Stage
from tests.functional.app.fake_engine import READY, snapshot


async def test_long_chats_mount_a_bounded_number_of_turns(stage: Stage) -> None:
    await stage.open_chat()
    transcript = stage.chat.query_one(Transcript)
    for number in range(transcript.max_mounted + 10):
        await transcript.add_question(Exchange(TurnRecord("chat", 2 * number, USER, f"question {number}")))
    await stage.until(lambda: len(transcript.children) <= transcript.max_mounted + 1)
    assert len(transcript.query("#earlier")) == 1


async def test_scrolling_up_is_not_fought(stage: Stage) -> None:
    await stage.open_chat()
    transcript = stage.chat.query_one(Transcript)
    await stage.ask_ready("count")
    request = stage.engine.begin_answer("\n\n".join(map(str, range(60))), 60)
    await stage.until(lambda: transcript.scroll_y > 20, "it did not follow the answer")
    for _ in range(2):
        await stage.pilot.press("pageup")
    await stage.until(lambda: transcript.scroll_y < transcript.max_scroll_y - 20)
    place = transcript.scroll_y
    stage.engine.tell(TextDelta(request, "\n\n" + "\n\n".join(map(str, range(60, 90))), 90))
    await stage.until(lambda: transcript.max_scroll_y > 100)
    assert transcript.scroll_y == place
    await stage.pilot.press("end")
    await stage.until(lambda: transcript.scroll_y >= transcript.max_scroll_y - 1)


@pytest.mark.parametrize("size", [(80, 24)])
async def test_narrow_folds_the_panels_to_a_line(stage: Stage) -> None:
    await stage.open_chat()
    stage.engine.snapshot = snapshot(2, phase="decode", tokens=40, recent_tpot_ms=(48.0, 50.0))
    await stage.see("hit 91% of 2400")
    await stage.see("mem 731/812 MiB")
    assert not stage.chat.query_one(PanelColumn).display
    await stage.pilot.press("f4")
    await stage.until(lambda: stage.chat.query_one(PanelColumn).display)
    await stage.see("RESIDENCY")
    assert not stage.chat.query_one("#chat").display
    await stage.pilot.press("escape")
    await stage.until(lambda: stage.chat.query_one("#chat").display)
    await stage.pilot.press("f4", "f4")
    await stage.until(lambda: not stage.chat.query_one(StatusLine).display)


async def can_be_scrolled(stage: Stage) -> None:
    """The sheet on screen is laid out, and longer than the screen."""
    await stage.until(lambda: [sheet for sheet in stage.app.screen.query(".sheet") if sheet.max_scroll_y > 0])


@pytest.mark.parametrize("size", [(60, 20)])
async def test_low_screens_tell_their_keys_and_what_is_to_be_read(stage: Stage) -> None:
    await stage.see("is ready")
    await stage.see("or type a message")
    await stage.see("7  Long documents  no profile yet    Questions about")
    await stage.see("f1 Help")
    await stage.pilot.press("f2")
    await stage.see("esc Back")
    await stage.pilot.press("escape", "f1")
    await stage.see("esc closes")
    await can_be_scrolled(stage)
    await stage.pilot.press("end")
    await stage.see("engine log")
    await stage.see("esc closes")


@pytest.mark.parametrize("size", [(60, 20)])
async def test_a_sheet_longer_than_the_screen_is_scrolled(stage: Stage) -> None:
    await stage.open_chat()
    stage.app.push_screen(TextSheet("Lines", [f"line {number}" for number in range(40)]))
    await stage.see("line 3")
    await stage.see("esc closes")
    await can_be_scrolled(stage)
    await stage.pilot.press("end")
    await stage.see("line 39")


@pytest.mark.parametrize("size", [(80, 24)])
async def test_a_title_too_long_loses_the_program_before_the_model(stage: Stage) -> None:
    await stage.open_chat()
    title = stage.chat.query_one(TitleBar)
    title.show_context(811, 8200)
    title.show_chat("General", "owner-model", (3, 3), "terse")
    await stage.see("General · version 3 of 3 · terse · owner-model")
    title.show_chat("General", "an-owner-of-model", (3, 3), "terse")
    await stage.see("General · v3/3 · terse · an-owner-of-model")
    title.show_chat("General", "a-model")
    await stage.see("moe-chat · General · a-model")


async def test_panels_show_the_snapshot(stage: Stage) -> None:
    await stage.open_chat()
    stage.engine.snapshot = snapshot(
        2, phase="decode", mode=APPROX, tokens=40, recent_tpot_ms=(48.0, 50.0), emulated_bytes_per_s=5e8
    )
    await stage.see("of 480)")
    for text in (
        "hit 89 % (2136 of 2400)",
        "48 of 2400 substituted",
        "load 31 %",
        "731 held of 812 MiB",
        "EMULATED at 500 MB/s",
        "TTFT 412 ms",
    ):
        await stage.see(text)


async def test_before_any_figure_there_are_dashes(stage: Stage) -> None:
    await stage.open_chat()
    stage.engine.snapshot = snapshot(2)
    await stage.see("hit –")
    await stage.see("p50 –")


async def test_resizing_in_mid_stream(stage: Stage) -> None:
    await stage.open_chat()
    await stage.ask_ready("hello")
    request = stage.engine.begin_answer("word " * 80, 80)
    for columns, rows in ((80, 24), (50, 12), (160, 50), (120, 40)):
        await stage.pilot.resize_terminal(columns, rows)
        stage.engine.tell(TextDelta(request, f"at {columns} ", 81))
        await stage.see(f"at {columns}")
    stage.engine.end_answer(request, "done " * 80, 82)
    await stage.see("done done")
    await stage.pilot.resize_terminal(80, 24)
    await stage.see("done done")


@pytest.mark.parametrize("size", [(50, 12)])
async def test_a_tiny_terminal_is_chat_only(stage: Stage) -> None:
    await stage.open_chat()
    await stage.ask_ready("hello")
    stage.engine.begin_answer("Hi there", 2)
    await stage.see("Hi there")
    assert not stage.chat.query_one("#title-bar").display


async def test_light_theme_while_chatting(stage: Stage) -> None:
    await stage.open_chat()
    await stage.ask_ready("hello")
    request = stage.engine.begin_answer("Hi", 1)
    stage.engine.end_answer(request, "# Hi\n\n`code`", 5)
    await stage.until(lambda: stage.chat.query(FinishedAnswer))
    stage.app.action_toggle_theme()
    await stage.pilot.pause()
    assert stage.app.theme == "verdigris-light"
    await stage.see("Hi")


LONG_PATH = "/data/checkpoints/a-long-name-of-a-folder/" + "and-another-one-below-it-" * 3 + "END"


def _letters(stage: Stage) -> str:
    """What is on screen without the places where lines were broken."""
    return re.sub(r"[\s▌│▐▎█▁▔┃▂▃▄▅▆▇]", "", stage.shown())


class TestLongValues:
    """A path or address is on screen as a whole: what is cut cannot be used."""

    @pytest.fixture
    def size(self) -> tuple[int, int]:
        return 60, 30

    @pytest.fixture
    def saved_settings(self) -> str:
        return f'[model]\nname = "{LONG_PATH}"\n'

    async def test_of_the_setting_that_is_highlighted(self, stage: Stage) -> None:
        await stage.pilot.press("f2")
        await stage.see("Residency")
        await stage.until(lambda: LONG_PATH in _letters(stage))

    async def test_in_the_list_of_models(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        entries = tuple(ModelEntry(LONG_PATH, LONG_PATH, is_ok, "") for is_ok in (True, False))
        monkeypatch.setattr("app.ui.widgets.model_list.list_models", lambda *_: entries)
        await stage.open_chat()
        stage.app.push_screen(ModelPicker((), "demo", EngineConfig()))
        await stage.until(lambda: _letters(stage).count(LONG_PATH) == 2)

    async def test_in_the_list_of_chats(self, stage: Stage) -> None:
        store = ChatStore(stage.db_path)
        chat = ChatRecord("code", "", LONG_PATH)
        store.save_whole(chat, [TurnRecord(chat.chat_id, 0, USER, "one")])
        store.close()
        await stage.pilot.press("ctrl+r")
        await stage.until(lambda: LONG_PATH in _letters(stage))

    async def test_in_a_table_of_an_answer(self, stage: Stage) -> None:
        await stage.open_chat()
        await stage.ask_ready("where")
        text = f"| place |\n|---|\n| `{LONG_PATH}` |\n"
        stage.engine.end_answer(stage.engine.begin_answer(text, 5), text, 5)
        await stage.see("5 tok")
        await stage.until(lambda: LONG_PATH in _letters(stage))

    async def test_in_the_configuration(self, stage: Stage) -> None:
        await stage.open_chat()
        stage.engine.tell(replace(READY, effective=(("model", LONG_PATH),)))
        await stage.until(lambda: stage.bridge.ready is not None and stage.bridge.ready.effective[0][1] == LONG_PATH)
        stage.app.push_screen(ConfigurationScreen(stage.bridge))
        await stage.until(lambda: LONG_PATH in _letters(stage))
