"""What is typed or pasted is text, whatever has the focus: it is never taken for a command, and never lost."""

from __future__ import annotations

import asyncio

import pytest
from textual import events
from textual.screen import Screen
from textual.widgets import Input

from app.ui.screens.chat import ChatScreen
from app.ui.screens.confirm import Confirm
from app.ui.screens.domain_menu import DomainMenu
from app.ui.screens.model_picker import ModelPicker
from app.ui.screens.settings import SettingsScreen
from app.ui.widgets.decision_bar import DecisionBar
from app.ui.widgets.entry import Entry
from app.ui.widgets.panel_column import PanelColumn
from app.ui.widgets.prompt import Prompt
from app.ui.widgets.turn import AnswerTurn
from engine.api import Cancel
from engine.events import CONTEXT_FULL, LoadProgress, TaskProgress
from tests.functional.app.conftest import Stage
from tests.functional.app.fake_engine import MIB, FakeEngine
from tests.functional.app.ui.test_profiles import begin_building
from tests.functional.app.ui.test_turns import kept, talk


def burst(stage: Stage, text: str) -> None:
    """Keys that arrive at once, as from a terminal without bracketed paste."""
    for character in text:
        key = events.Key("enter", "\r") if character == "\n" else events.Key(character, character)
        stage.app.post_message(key)


async def prompt_is(stage: Stage, text: str) -> None:
    """Wait until the chat is on screen with that text in the prompt, which has the focus."""

    def is_there() -> bool:
        screen = stage.app.screen
        return isinstance(screen, ChatScreen) and screen.query_one(Prompt).text == text

    await stage.until(is_there, f"{text!r} never stood in the prompt")
    assert stage.app.focused is stage.chat.query_one(Prompt)


def on_top(stage: Stage, kind: type[Screen[object]]) -> bool:
    """A screen of that kind is on screen, and composed."""
    return isinstance(stage.app.screen, kind) and stage.app.screen.is_mounted


@pytest.mark.parametrize("text", ["do you know", "/branch", "yes"])
async def test_text_typed_over_a_turn_goes_to_the_prompt(stage: Stage, text: str) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "First answer."))
    before = stage.chat.flow.conversation
    await stage.pilot.press("alt+up")
    assert isinstance(stage.app.focused, AnswerTurn)
    await stage.pilot.press(*("space" if character == " " else character for character in text))
    await prompt_is(stage, text)
    assert stage.chat.flow.conversation is before
    assert len(kept(stage)[0]) == 2


async def test_a_paste_over_a_turn_goes_to_the_prompt(stage: Stage) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "First answer."))
    await stage.pilot.press("alt+up")
    stage.app.post_message(events.Paste("dy\ndy"))
    await prompt_is(stage, "dy\ndy")


async def test_text_typed_in_the_first_menu_begins_a_chat_with_it(stage: Stage) -> None:
    await stage.pilot.press("down")
    await stage.pilot.press("2", "plus", "2", "question_mark")
    await prompt_is(stage, "2+2?")
    assert stage.chat.flow.domain.name == "maths"
    assert stage.engine.submitted() == []


async def test_a_paste_into_the_first_menu_is_kept_whole(stage: Stage) -> None:
    stage.app.post_message(events.Paste("b\nd y"))
    await prompt_is(stage, "b\nd y")


async def test_text_typed_in_the_menu_over_a_chat_goes_to_its_draft(stage: Stage) -> None:
    await stage.open_chat()
    before = stage.chat.flow.conversation
    await stage.pilot.press("4", "f3")
    await stage.until(lambda: on_top(stage, DomainMenu))
    await stage.pilot.press("2")
    await prompt_is(stage, "42")
    assert stage.chat.flow.conversation is before


@pytest.mark.parametrize("opened", ["app.help", "app.show_configuration", "maximise_panel('tpot')"])
async def test_text_typed_over_a_sheet_goes_to_the_prompt(stage: Stage, opened: str) -> None:
    await stage.open_chat()
    await stage.app.run_action(opened, stage.chat)
    await stage.until(lambda: not isinstance(stage.app.screen, ChatScreen) and stage.app.screen.is_mounted)
    burst(stage, "quit")
    await prompt_is(stage, "quit")


@pytest.mark.parametrize("size", [(80, 24)])
async def test_panels_that_cover_the_prompt_make_room_for_text(stage: Stage) -> None:
    await stage.open_chat()
    await stage.pilot.press("f6")
    await stage.until(lambda: stage.chat.panels_cover)
    await stage.pilot.press("m", "q")
    await prompt_is(stage, "mq")
    assert not stage.chat.panels_cover


async def test_the_model_picker_takes_what_is_typed(stage: Stage) -> None:
    await stage.open_chat()
    await stage.app.run_action("app.choose_model")
    await stage.until(lambda: on_top(stage, ModelPicker))
    await stage.pilot.press(*"owner/model")
    assert stage.app.screen.query_one("#model-name", Input).value == "owner/model"


async def test_a_burst_with_line_breaks_is_one_message(stage: Stage) -> None:
    await stage.open_chat()
    burst(stage, "a\nb\nc")
    await prompt_is(stage, "a\nb\nc")
    assert stage.engine.submitted() == []
    await stage.pilot.press("enter")
    await stage.until(lambda: [turn.messages[-1].content for turn in stage.engine.submitted()] == ["a\nb\nc"])


async def test_an_enter_at_the_end_of_a_burst_sends(stage: Stage) -> None:
    await stage.open_chat()
    burst(stage, "hello\n")
    await stage.until(lambda: stage.engine.submitted())
    assert stage.engine.submitted()[0].messages[-1].content == "hello"


async def test_a_burst_confirms_nothing(stage: Stage) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "First answer."))
    await stage.pilot.press("alt+up", "ctrl+d")
    await stage.until(lambda: on_top(stage, Confirm))
    burst(stage, "yes\nno")
    await prompt_is(stage, "yes\nno")
    assert len(kept(stage)[0]) == 2


async def test_a_paste_confirms_nothing(stage: Stage) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "First answer."))
    await stage.pilot.press("alt+up", "ctrl+d")
    await stage.until(lambda: on_top(stage, Confirm))
    stage.app.post_message(events.Paste("y"))
    await prompt_is(stage, "y")
    assert len(kept(stage)[0]) == 2


@pytest.mark.parametrize(("typed", "text"), [("n", ""), ("no", "no"), ("m", "m")])
async def test_an_n_alone_is_an_answer_and_no_text(stage: Stage, typed: str, text: str) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "First answer."))
    await stage.pilot.press("alt+up", "ctrl+d")
    await stage.until(lambda: on_top(stage, Confirm))
    burst(stage, typed)
    await stage.until(lambda: isinstance(stage.app.screen, ChatScreen))
    await stage.until(lambda: stage.chat.query_one(Prompt).text == text)
    assert len(kept(stage)[0]) == 2


@pytest.mark.parametrize("key", ["f2", "f5", "ctrl+n", "ctrl+r", "ctrl+q", "f3", "escape", "enter"])
async def test_nothing_else_runs_while_something_is_to_be_confirmed(stage: Stage, key: str) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "First answer."))
    await stage.pilot.press("alt+up", "ctrl+d")
    await stage.until(lambda: on_top(stage, Confirm))
    sent = list(stage.engine.sent)
    await stage.pilot.press(key)
    await stage.until(lambda: isinstance(stage.app.screen, ChatScreen), "another key does not cancel")
    assert stage.engine.sent == sent
    assert len(stage.chat.flow.conversation.exchanges) == 1
    assert stage.app.is_running


async def test_what_is_typed_right_after_sending_is_not_lost(stage: Stage) -> None:
    await stage.open_chat()
    prompt = stage.chat.query_one(Prompt)
    for text in ("first", "/nosuch"):
        prompt.set_text(text)
        prompt.submit()
        prompt.insert("next")
        await stage.pilot.pause()
    assert prompt.text == "/nosuch\nnext"
    await stage.until(lambda: stage.engine.submitted())
    assert stage.engine.submitted()[0].messages[-1].content == "first"


class TestDrafts:
    """A half-typed prompt stays, or comes back."""

    async def test_ctrl_c_clears_it_and_undo_or_up_brings_it_back(self, stage: Stage) -> None:
        await stage.open_chat()
        prompt = stage.chat.query_one(Prompt)
        await stage.pilot.press(*"draft", "ctrl+c")
        assert prompt.text == ""
        await stage.pilot.press("alt+z")
        assert prompt.text == "draft"
        await stage.pilot.press("ctrl+c", "h", "i", "enter", "up", "up")
        assert prompt.text == "draft"
        assert stage.app.is_running

    async def test_a_question_taken_back_leaves_it(self, stage: Stage) -> None:
        await stage.open_chat()
        await stage.ask_ready("one")
        await stage.ask("two")
        stage.engine.end_answer(stage.engine.submitted()[0].request_id, "First.", 1)
        await stage.until(lambda: len(stage.engine.submitted()) == 2)
        await stage.ask("three")
        await stage.pilot.press(*"draft")
        await stage.chat.flow.withdraw()
        stage.chat.query_one(Prompt).give_back("three")
        assert stage.chat.query_one(Prompt).text == "three\ndraft"

    async def test_sending_a_recalled_text_brings_it_back(self, stage: Stage) -> None:
        await stage.open_chat()
        await talk(stage, ("one", "First answer."))
        await stage.pilot.press(*"draft", "up", "enter")
        await stage.until(lambda: len(stage.engine.submitted()) == 2)
        assert stage.engine.submitted()[1].messages[-1].content == "one"
        assert stage.chat.query_one(Prompt).text == "draft"

    async def test_another_wording_that_was_not_sent_is_recalled(self, stage: Stage) -> None:
        await stage.open_chat()
        await talk(stage, ("one", "First answer."))
        await stage.pilot.press("alt+up", "alt+e")
        await stage.until(lambda: not isinstance(stage.app.screen, ChatScreen) and stage.app.screen.is_mounted)
        await stage.pilot.press("x", "escape", "escape", "up")
        await prompt_is(stage, "onex")

    async def test_a_full_context_takes_neither_focus_nor_text(self, stage: Stage) -> None:
        await stage.open_chat()
        await talk(stage, ("one", "First answer."))
        prompt = stage.chat.query_one(Prompt)
        request = await stage.ask_ready("two")
        await stage.pilot.press(*"half")
        stage.engine.end_answer(request, "It is cut", 3, CONTEXT_FULL)
        await stage.has_to_decide("trim")
        await stage.pilot.press("space", *"typed")
        await prompt_is(stage, "half typed")
        await stage.pilot.press("enter")
        await stage.until(lambda: len(stage.engine.submitted()) == 3, "enter does not send what was typed")
        third = stage.engine.submitted()[2]
        assert (third.messages[-1].content, third.trims_oldest) == ("half typed", False)
        stage.engine.end_answer(third.request_id, "Cut again", 3, CONTEXT_FULL)
        await stage.until(lambda: not stage.chat.flow.is_busy)
        assert len(stage.chat.query(DecisionBar)) == 1
        await stage.pilot.press("f7", "x")
        assert (stage.app.focused, prompt.text) == (prompt, "x")

    async def test_a_decision_goes_with_the_chat_it_is_about(self, stage: Stage) -> None:
        await stage.open_chat()
        await talk(stage, ("one", "First answer."))
        request = await stage.ask_ready("two")
        stage.engine.end_answer(request, "It is cut", 3, CONTEXT_FULL)
        await stage.has_to_decide("trim")
        await stage.pilot.press("f7", "ctrl+n")
        await stage.until(lambda: "Leave out the oldest turns" not in stage.shown())
        await stage.until(lambda: stage.app.focused is stage.chat.query_one(Prompt))


class TestEscape:
    """One step back."""

    async def test_it_leaves_a_turn_or_a_panel_before_it_stops_an_answer(self, stage: Stage) -> None:
        await stage.open_chat()
        await stage.ask_ready("one")
        request = stage.engine.begin_answer("First", 1)
        await stage.see("First")
        for way_in in ("alt+up", "f6"):
            await stage.pilot.press(way_in)
            await stage.until(lambda: not isinstance(stage.app.focused, Prompt))
            await stage.see("esc Back")
            await stage.pilot.press("escape")
            await stage.until(lambda: isinstance(stage.app.focused, Prompt))
            assert Cancel(request) not in stage.engine.sent
        await stage.see("esc Stop")
        await stage.pilot.press("escape")
        await stage.until(lambda: Cancel(request) in stage.engine.sent)

    async def test_it_closes_the_list_of_commands_before_it_stops_an_answer(self, stage: Stage) -> None:
        await stage.open_chat()
        await stage.ask_ready("one")
        request = stage.engine.begin_answer("First", 1)
        await stage.pilot.press("/")
        await stage.see("/chats")
        await stage.pilot.press("escape")
        await stage.until(lambda: "/chats" not in stage.shown())
        assert stage.chat.query_one(Prompt).text == "/"
        assert Cancel(request) not in stage.engine.sent

    async def test_in_the_menu_over_a_chat_it_leaves_a_build_alone(self, stage: Stage) -> None:
        request = await begin_building(stage)
        await stage.open_chat()
        stage.engine.tell(TaskProgress(request, "recording", 3, 40))
        await stage.pilot.press("f3")
        await stage.until(lambda: on_top(stage, DomainMenu))
        await stage.see("ctrl+x cancels")
        await stage.pilot.press("escape")
        await stage.until(lambda: isinstance(stage.app.screen, ChatScreen))
        assert Cancel(request) not in stage.engine.sent


async def test_the_key_editor_takes_keys_of_the_app(stage: Stage) -> None:
    await stage.open_chat()
    await stage.app.run_action("app.settings")
    await stage.until(lambda: on_top(stage, SettingsScreen))
    await stage.pilot.press(*"keys.chat.mode", "enter")
    for key in ("ctrl+q", "f1", "a"):
        await stage.pilot.press(key)
        await stage.see(f"→ {key}")
    assert stage.app.is_running


class TestSlowEngine:
    @pytest.fixture
    def engine_type(self) -> type[FakeEngine]:
        return FakeEngine

    async def test_loading_goes_on_while_one_steps_back(self, stage: Stage) -> None:
        await stage.open_chat()
        await stage.ask("one")
        stage.engine.tell(LoadProgress("reading weights", 12 * MIB, 139 * MIB))
        await stage.see("reading weights")
        await stage.pilot.press("alt+up", "escape")
        assert Cancel() not in stage.engine.sent


async def test_a_key_with_alt_is_no_text_as_terminals_send_it(stage: Stage) -> None:
    """They send alt+z with the letter z, and with the prompt in focus."""
    await stage.open_chat()
    await stage.pilot.press("a", "b")
    for letter in "qkz":  # no key, no key, undo
        stage.app.post_message(events.Key(f"alt+{letter}", letter))
    await prompt_is(stage, "")


async def test_what_had_the_focus_and_is_gone_leaves_it_to_the_prompt(stage: Stage) -> None:
    await stage.open_chat()
    stage.app.screen.set_focus(None)
    await stage.until(lambda: isinstance(stage.app.focused, Prompt), "no key would be heard")


@pytest.mark.parametrize("size", [(80, 24)])
async def test_text_typed_while_panels_cover_is_seen(stage: Stage) -> None:
    await stage.open_chat()
    await stage.pilot.press("f4")
    await stage.until(lambda: stage.chat.panels_cover)
    assert not isinstance(stage.app.focused, Prompt)
    burst(stage, "seen")
    await stage.see("seen")
    await prompt_is(stage, "seen")


@pytest.mark.parametrize("size", [(80, 24)])
async def test_covered_and_uncovered_at_once_the_focus_stays_where_text_goes(stage: Stage) -> None:
    await stage.open_chat()
    for _ in range(20):
        stage.chat.panel_mode = "full"
        burst(stage, "x")
        await stage.pilot.pause()
    await prompt_is(stage, "x" * 20)
    await stage.pilot.pause(0.3)
    await prompt_is(stage, "x" * 20)


@pytest.mark.parametrize("size", [(80, 24)])
async def test_a_window_that_widens_leaves_the_focus_in_the_prompt(stage: Stage) -> None:
    await stage.open_chat()
    await stage.pilot.resize_terminal(120, 40)
    await stage.until(lambda: stage.chat.query_one(PanelColumn).size.width)
    await stage.pilot.pause(0.3)
    assert isinstance(stage.app.focused, Prompt)


async def test_a_window_that_narrows_over_chosen_panels_takes_the_focus_to_them(stage: Stage) -> None:
    await stage.open_chat()
    stage.app.screen._chosen_modes[False] = "full"
    await stage.pilot.resize_terminal(80, 24)
    await stage.until(lambda: stage.chat.panels_cover)
    await stage.until(lambda: not isinstance(stage.app.focused, Prompt))
    burst(stage, "seen")
    await stage.see("seen")


async def test_text_typed_while_a_turn_is_brought_on_screen_keeps_the_focus(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "First answer."))
    reveal, may_go_on = stage.chat.transcript.reveal, asyncio.Event()

    async def slow_reveal(entry: Entry) -> None:
        await may_go_on.wait()
        await reveal(entry)

    monkeypatch.setattr(stage.chat.transcript, "reveal", slow_reveal)
    moving = asyncio.ensure_future(stage.chat.turn_actions.action_to_turn(-1))
    burst(stage, "typed")
    await stage.until(lambda: stage.chat.query_one(Prompt).text == "typed")
    may_go_on.set()
    await moving
    await stage.pilot.pause()
    await prompt_is(stage, "typed")


@pytest.mark.parametrize("key", ["alt+up", "f6"])
async def test_text_typed_behind_a_key_that_acts_late_keeps_the_focus(stage: Stage, key: str) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "First answer."))
    may_go_on = asyncio.Event()
    stage.chat.call_later(may_go_on.wait)
    stage.app.post_message(events.Key(key, None))
    burst(stage, "typed")
    await stage.until(lambda: stage.chat.query_one(Prompt).text == "typed")
    may_go_on.set()
    await stage.pilot.pause()
    await stage.pilot.pause(0.2)
    await prompt_is(stage, "typed")
