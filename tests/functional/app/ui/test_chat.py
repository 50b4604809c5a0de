"""What a user does in the app, with an engine that does as it is told."""

from __future__ import annotations

import pytest

from app.domains.domain import all_domains
from app.storage.records import COMPLETE, PARTIAL, STOPPED
from app.storage.store import ChatStore
from app.ui.screens.chat import ChatScreen
from app.ui.screens.domain_menu import DomainMenu
from app.ui.screens.help import HelpScreen
from app.ui.widgets.answer_text import FinishedAnswer
from app.ui.widgets.prompt import Prompt
from engine.api import Cancel, Load, Message, SetMode
from engine.config import APPROX, EXACT
from engine.events import CANCELLED, LABEL_APPROX, ModeChanged, TextDelta
from tests.functional.app.conftest import Stage
from tests.functional.app.fake_engine import READY


async def test_menu_to_chat(stage: Stage) -> None:
    assert isinstance(stage.app.screen, DomainMenu)
    await stage.see("Maths")
    await stage.loaded()
    await stage.pilot.press("down", "enter")
    await stage.until(lambda: isinstance(stage.app.screen, ChatScreen))
    await stage.see("moe-chat · Maths · SmolLM2")
    await stage.loaded()
    assert isinstance(stage.engine.sent[0], Load)


@pytest.mark.parametrize("size", [(80, 24)])
async def test_the_whole_menu_fits_into_a_small_terminal(stage: Stage) -> None:
    await stage.loaded()
    shown = stage.shown()
    assert "moe-chat" in shown
    for domain in all_domains():
        assert f"  {domain.title} " in shown
        assert f" {domain.purpose} " in shown


async def test_a_domain_can_be_chosen_by_number_and_by_mouse(stage: Stage) -> None:
    await stage.pilot.press("alt+3")
    await stage.see("moe-chat · Competition")
    await stage.pilot.press("f3")
    await stage.until(lambda: isinstance(stage.app.screen, DomainMenu))
    await stage.see("What is this chat about")
    await stage.pilot.click("#domains", offset=(10, 5))
    await stage.see("moe-chat · Writing")


async def test_ask_stream_and_finish(stage: Stage) -> None:
    await stage.open_chat()
    await stage.ask_ready("capital of France")
    submit = stage.engine.submitted()[0]
    assert submit.messages[0].role == "system"
    assert submit.messages[-1] == Message("user", "capital of France")
    assert submit.sampling.temperature is None
    request = stage.engine.begin_answer("The capital is **Par", 5)
    await stage.see("The capital is")
    stage.engine.tell(TextDelta(request, "is**.", 7))
    await stage.see("The capital is Paris.")
    await stage.see("7 tok")
    stage.engine.end_answer(request, "The capital is **Paris**.", 7)
    await stage.see("7 tok · TTFT 412 ms")
    await stage.until(lambda: len(stage.chat.query(FinishedAnswer)) == 1)
    assert "The capital is Paris." in stage.shown()
    await stage.ask_ready("and of Spain")
    assert [message.role for message in stage.engine.submitted()[1].messages] == ["system", "user", "assistant", "user"]


async def test_everything_is_in_the_store(stage: Stage) -> None:
    await stage.open_chat()
    await stage.ask_ready("hello")
    reader = ChatStore(stage.db_path)
    (chat,) = reader.chats()
    assert (chat.domain, chat.model) == ("maths", READY.model_name)
    assert [(turn.role, turn.text) for turn in reader.turns(chat.chat_id)] == [("user", "hello")]
    request = stage.engine.begin_answer("Good ", 1)
    await stage.until(lambda: len(reader.turns(chat.chat_id)) == 2, "the partial answer was not saved")
    assert [(turn.state, turn.text) for turn in reader.turns(chat.chat_id)] == [(COMPLETE, "hello"), (PARTIAL, "Good ")]
    stage.engine.end_answer(request, "Good day.", 3)
    await stage.until(lambda: reader.turns(chat.chat_id)[1].state == COMPLETE)
    answer = reader.turns(chat.chat_id)[1]
    assert answer.text == "Good day."
    assert answer.mode_label == "exact"
    assert answer.stats is not None
    assert (answer.stats["new_tok"], answer.stats["reason"]) == (3, "stop")
    reader.close()


async def test_text_is_never_markup_and_never_obeyed(stage: Stage) -> None:
    await stage.open_chat()
    await stage.ask_ready("[bold red]hi[/]")
    await stage.see("[bold red]hi[/]")
    request = stage.engine.begin_answer("<b>tag</b> \x1b[31mred", 5)
    await stage.see("<b>tag</b> ␛[31mred")
    stage.engine.end_answer(request, "<b>tag</b> \x1b[31mred", 5)
    await stage.until(lambda: stage.chat.query(FinishedAnswer))
    await stage.see("<b>tag</b> ␛[31mred")


async def test_f5_in_mid_answer_is_marked_once_the_engine_says_so(stage: Stage) -> None:
    await stage.open_chat()
    stage.engine.answer = lambda command: None  # type: ignore[method-assign]
    await stage.ask_ready("hello")
    request = stage.engine.begin_answer("one two", 41)
    await stage.see("one two")
    assert "◆ EXACT" in stage.shown()
    await stage.pilot.press("f5")
    await stage.until(lambda: SetMode(APPROX) in stage.engine.sent)
    await stage.see("◆ EXACT → ≈")
    assert "at token" not in stage.shown()
    stage.engine.tell(ModeChanged(APPROX, request, 41))
    await stage.see("≈ APPROX")
    await stage.see("exact → approx at token 41")
    stage.engine.end_answer(request, "one two three", 60, label=LABEL_APPROX)
    await stage.see("approximate:")
    await stage.see("exact → approx at token 41")
    reader = ChatStore(stage.db_path)
    answer = reader.turns(reader.chats()[0].chat_id)[1]
    assert answer.markers == ["exact → approx at token 41"]
    assert answer.mode_label == LABEL_APPROX
    reader.close()


async def test_f5_between_answers_leaves_no_marker(stage: Stage) -> None:
    await stage.open_chat()
    await stage.pilot.press("f5")
    await stage.see("≈ APPROX")
    await stage.pilot.pause()  # the badge has its new width
    assert await stage.pilot.click("#mode-badge")
    await stage.see("◆ EXACT")
    await stage.until(lambda: stage.bridge.mode == EXACT)
    assert "at token" not in stage.shown()


async def test_esc_stops_and_keeps_the_partial_answer(stage: Stage) -> None:
    await stage.open_chat()
    await stage.ask_ready("tell me a story")
    request = stage.engine.begin_answer("Once upon a time", 4)
    await stage.see("Once upon a time")
    await stage.pilot.press("escape")
    await stage.until(lambda: Cancel(request) in stage.engine.sent)
    await stage.see("stopping")
    stage.engine.end_answer(request, "Once upon a time", 4, reason=CANCELLED)
    await stage.see("stopped · 4 tok")
    await stage.see("Once upon a time")
    reader = ChatStore(stage.db_path)
    answer = reader.turns(reader.chats()[0].chat_id)[1]
    assert (answer.state, answer.text) == (STOPPED, "Once upon a time")
    reader.close()


async def test_ctrl_c_stops_and_says_how_to_quit(stage: Stage) -> None:
    await stage.open_chat()
    await stage.ask_ready("hello")
    request = stage.engine.begin_answer("Hi", 1)
    await stage.see("Hi")
    await stage.pilot.press("ctrl+c")
    await stage.until(lambda: Cancel(request) in stage.engine.sent)
    stage.engine.end_answer(request, "Hi", 1, reason=CANCELLED)
    await stage.see("stopped ·")
    await stage.pilot.press("ctrl+c")
    await stage.see("ctrl+q quits.")
    assert stage.app.is_running


async def test_a_finished_answer_can_be_selected_and_copied(stage: Stage) -> None:
    await stage.open_chat()
    await stage.ask_ready("hello")
    request = stage.engine.begin_answer("Hi", 1)
    stage.engine.end_answer(request, "The answer is *forty-two*.", 8)
    await stage.see("8 tok · TTFT")
    for _ in range(20):  # lines move below the pointer while a busy machine still lays the screen out
        await stage.pilot.mouse_down(FinishedAnswer, offset=(4, 0))
        await stage.pilot.hover(FinishedAnswer, offset=(9, 0))
        await stage.pilot.mouse_up(FinishedAnswer, offset=(9, 0))
        if (stage.app.screen.get_selected_text() or "").startswith("answer"):
            break
    await stage.pilot.press("ctrl+c")
    await stage.until(lambda: stage.app.clipboard.startswith("answer"), "nothing was copied")
    assert isinstance(stage.app.focused, Prompt)


async def test_new_chat_leaves_the_old_answer_stopped_and_kept(stage: Stage) -> None:
    await stage.open_chat()
    await stage.ask_ready("first chat")
    request = stage.engine.begin_answer("A long ans", 3)
    await stage.see("A long ans")
    await stage.pilot.press("ctrl+n")
    await stage.until(lambda: Cancel(request) in stage.engine.sent)
    await stage.until(lambda: "A long ans" not in stage.shown())
    stage.engine.end_answer(request, "A long answer", 4, reason=CANCELLED)
    await stage.ask_ready("second chat")
    assert [message.content for message in stage.engine.submitted()[-1].messages][1:] == ["second chat"]
    reader = ChatStore(stage.db_path)
    first, second = reader.chats()
    await stage.until(lambda: reader.turns(first.chat_id)[1].text == "A long answer", "the stopped answer was not kept")
    assert reader.turns(first.chat_id)[1].state == STOPPED
    assert reader.turns(second.chat_id)[0].text == "second chat"
    reader.close()


async def test_a_question_during_an_answer_waits_and_can_be_taken_back(stage: Stage) -> None:
    await stage.open_chat()
    await stage.ask_ready("one")
    request = stage.engine.begin_answer("First", 1)
    await stage.see("First")
    await stage.ask("two")
    await stage.ask("three")
    await stage.see("2 more waiting")
    stage.engine.end_answer(request, "First.", 1)
    await stage.until(lambda: len(stage.engine.submitted()) == 2)
    second = stage.engine.submitted()[1]
    assert [message.content for message in second.messages][1:] == ["one", "First.", "two"]
    stage.engine.end_answer(second.request_id, "Second.", 1)
    await stage.until(lambda: len(stage.engine.submitted()) == 3)
    await stage.ask("four")
    await stage.until(lambda: stage.chat.flow.conversation.waiting)
    stage.engine.end_answer(stage.engine.submitted()[2].request_id, "Third.", 1)
    await stage.until(lambda: len(stage.engine.submitted()) == 4)


async def test_the_prompt(stage: Stage) -> None:
    await stage.open_chat()
    prompt = stage.chat.query_one(Prompt)
    height = prompt.size.height
    await stage.pilot.press("a", "ctrl+j", "b", "shift+enter", "c")
    assert prompt.text == "a\nb\nc"
    await stage.until(lambda: prompt.size.height == height + 2, "the prompt did not grow")
    await stage.pilot.press("enter")
    await stage.until(lambda: prompt.text == "" and prompt.size.height == height)
    assert stage.engine.submitted()[0].messages[-1].content == "a\nb\nc"
    await stage.pilot.press("x", "up")
    assert prompt.text == "a\nb\nc"
    await stage.pilot.press("down")
    assert prompt.text == "x"
    await stage.pilot.press("backspace", "enter", "space", "enter")
    assert len(stage.chat.flow.conversation.exchanges) == 1


async def test_help_and_palette(stage: Stage) -> None:
    await stage.open_chat()
    await stage.pilot.press("f1")
    await stage.until(lambda: isinstance(stage.app.screen, HelpScreen))
    await stage.see("shift+enter, ctrl+j")
    await stage.pilot.press("escape")
    await stage.until(lambda: isinstance(stage.app.screen, ChatScreen))
    titles = [command.title for command in stage.app.get_system_commands(stage.app.screen)]
    assert {"Stop", "Exact or approximate", "New chat", "Panels", "Domain", "Quit", "Help"} <= set(titles)
    await stage.pilot.press("ctrl+p")
    await stage.see("Copy code")
