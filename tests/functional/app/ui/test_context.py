"""Whether a question is in the context of what follows is seen at the turn, changed there, kept and exported."""

from __future__ import annotations

from pathlib import Path

from app.storage import import_file
from engine.events import CANCELLED
from tests.functional.app.conftest import Stage
from tests.functional.app.ui.test_turns import kept, talk


def _told(stage: Stage) -> list[str]:
    return [message.content for message in stage.engine.submitted()[-1].messages][1:]


async def _stopped(stage: Stage, question: str, text: str) -> None:
    request = await stage.ask_ready(question)
    if text:
        stage.engine.begin_answer(text, 1)
        await stage.see(text)
    stage.engine.end_answer(request, "", int(bool(text)), CANCELLED)
    await stage.until(lambda: not stage.chat.flow.is_busy)


async def test_an_unanswered_question_is_put_into_the_context(stage: Stage, tmp_path: Path) -> None:
    await stage.open_chat()
    await _stopped(stage, "never answered", "")
    await stage.see("not in the context of what follows")
    await stage.ask("/context")
    await stage.until(lambda: "alt+i leaves it out" in stage.shown())
    assert [turn.in_context for turn in kept(stage)[0]] == [True, None]
    await stage.ask_ready("two")
    assert _told(stage) == ["never answered\n\ntwo"]
    stage.engine.end_answer(stage.engine.submitted()[-1].request_id, "Answer.", 1)
    await stage.until(lambda: not stage.chat.flow.is_busy)
    await stage.ask(f"/export json {tmp_path / 'chat.json'}")
    await stage.see("Saved to")
    (exported,) = import_file.read_file(tmp_path / "chat.json").chats
    assert [turn.in_context for turn in exported.turns] == [True, None, None, None]


async def test_a_stopped_answer_is_left_out_of_the_context(stage: Stage) -> None:
    await stage.open_chat()
    await _stopped(stage, "one", "Half an ans")
    await stage.see("in the context of what follows  ·  alt+i leaves it out")
    await stage.pilot.press("alt+up", "alt+i")
    await stage.see("not in the context of what follows  ·  alt+i puts it in")
    await stage.pilot.press("escape")
    await stage.ask_ready("two")
    assert _told(stage) == ["two"]
    stage.engine.end_answer(stage.engine.submitted()[-1].request_id, "Answer.", 1)
    await stage.until(lambda: not stage.chat.flow.is_busy)
    chat_id = stage.chat.flow.conversation.chat_id
    await stage.pilot.press("ctrl+n")
    await stage.chat.open_chat(chat_id)
    await stage.see("alt+i puts it in")


async def test_a_whole_answer_says_so_only_when_it_is_left_out(stage: Stage) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "First answer."))
    assert "in the context" not in stage.shown()
    await stage.ask("/context")
    await stage.see("not in the context of what follows")
    await stage.ask("/context")
    await stage.until(lambda: "not in the context of what follows" not in stage.shown())
