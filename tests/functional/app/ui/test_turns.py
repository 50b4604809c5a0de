"""What can be done to the turns of a chat, by key and by mouse. Nothing that was stored is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.storage import import_file
from app.storage.records import STOPPED, TurnRecord
from app.storage.store import ChatStore
from app.ui.screens import setting_words
from app.ui.screens.confirm import Confirm
from app.ui.screens.sheets import EditQuestion
from app.ui.widgets.prompt import Prompt
from app.ui.widgets.turn import AnswerTurn, QuestionTurn
from engine.events import CANCELLED, LABEL_APPROX_CONTEXT, LENGTH
from tests.functional.app.conftest import Stage


async def talk(stage: Stage, *pairs: tuple[str, str], reason: str = "stop") -> None:
    """Questions, each with its whole answer."""
    for question, text in pairs:
        request = await stage.ask_ready(question)
        stage.engine.begin_answer(text[:3], 1)
        stage.engine.end_answer(request, text, len(text.split()), reason)
        await stage.until(lambda: not stage.chat.flow.is_busy)
        await stage.see(text.partition("\n")[0])


def kept(stage: Stage) -> list[list[TurnRecord]]:
    """The turns of every kept chat, the oldest chat first."""
    reader = ChatStore(stage.db_path)
    turns = [reader.turns(chat.chat_id) for chat in reader.chats()]
    reader.close()
    return turns


async def test_regenerating_keeps_the_earlier_answer_as_a_version(stage: Stage) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "First answer."), ("two", "Second answer."))
    await stage.pilot.press("ctrl+g")
    await stage.until(lambda: len(stage.engine.submitted()) == 3)
    request = stage.engine.submitted()[2]
    assert [message.content for message in request.messages][1:] == ["one", "First answer.", "two"]
    stage.engine.end_answer(request.request_id, "Another answer.", 2)
    await stage.see("version 2 of 2")
    await stage.see("Another answer.")
    assert "Second answer." not in stage.shown()
    await stage.until(lambda: len(kept(stage)) == 2)
    old, new = kept(stage)
    assert [turn.text for turn in old] == ["one", "First answer.", "two", "Second answer."]
    assert [turn.text for turn in new] == ["one", "First answer.", "two", "Another answer."]
    await stage.pilot.press("alt+up", "left")
    await stage.see("Second answer.")
    await stage.see("version 1 of 2")
    assert isinstance(stage.app.focused, AnswerTurn)
    await stage.pilot.press("right")
    await stage.see("Another answer.")


async def test_an_export_as_json_holds_every_version(stage: Stage, tmp_path: Path) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "First answer."))
    await stage.pilot.press("ctrl+g")
    await stage.until(lambda: len(stage.engine.submitted()) == 2)
    stage.engine.end_answer(stage.engine.submitted()[1].request_id, "Another answer.", 2)
    await stage.until(lambda: [turns[-1].text for turns in kept(stage)] == ["First answer.", "Another answer."])
    await stage.ask(f"/export json {tmp_path / 'chat.json'}")
    await stage.see("Saved to")
    parent, branch = import_file.read_file(tmp_path / "chat.json").chats
    assert branch.parent_chat_id == parent.chat_id
    assert [kept.turns[-1].text for kept in (parent, branch)] == ["First answer.", "Another answer."]


async def test_an_answer_that_failed_is_written_anew_in_its_place(stage: Stage) -> None:
    await stage.open_chat()
    request = await stage.ask_ready("one")
    stage.engine.end_answer(request, "", 0, CANCELLED)
    await stage.see("stopped")
    await stage.pilot.press("ctrl+g")
    await stage.until(lambda: len(stage.engine.submitted()) == 2)
    stage.engine.end_answer(stage.engine.submitted()[1].request_id, "Now.", 1)
    await stage.see("Now.")
    await stage.until(lambda: [[turn.text for turn in turns] for turns in kept(stage)] == [["one", "Now."]])


async def test_a_question_is_asked_differently_and_the_earlier_one_kept(stage: Stage) -> None:
    await stage.open_chat()
    await talk(stage, ("first", "First answer."), ("second", "Second answer."))
    await stage.pilot.press("alt+up", "alt+up", "alt+up", "alt+up")
    await stage.until(lambda: isinstance(stage.app.focused, QuestionTurn))
    await stage.pilot.press("alt+e")
    await stage.until(lambda: isinstance(stage.app.screen, EditQuestion))
    await stage.pilot.press("e", "r", "enter")
    await stage.until(lambda: len(stage.engine.submitted()) == 3)
    assert [message.content for message in stage.engine.submitted()[2].messages][1:] == ["firster"]
    await stage.see("version 2 of 2")
    assert "second" not in stage.shown()
    stage.engine.end_answer(stage.engine.submitted()[2].request_id, "Better.", 1)
    await stage.see("Better.")
    assert [[turn.text for turn in turns] for turns in kept(stage)] == [
        ["first", "First answer.", "second", "Second answer."],
        ["firster", "Better."],
    ]


async def test_a_stopped_answer_is_continued_without_a_break(stage: Stage) -> None:
    await stage.open_chat()
    await talk(stage, ("story", "Once upon"), reason=CANCELLED)
    await stage.pilot.press("alt+up", "alt+c")
    await stage.until(lambda: len(stage.engine.submitted()) == 2)
    submit = stage.engine.submitted()[1]
    assert submit.continues
    assert submit.messages[-1].content == "Once upon"
    stage.engine.begin_answer(" a ti", 1)
    await stage.see("Once upon a ti")
    stage.engine.end_answer(submit.request_id, " a time.", 2)
    await stage.see("Once upon a time.")
    await stage.see("part 1 of 2: stopped")
    await stage.see("part 2 of 2: 2 tok")
    ((question, answer),) = kept(stage)
    assert (question.text, answer.text, answer.state) == ("story", "Once upon a time.", "complete")
    assert answer.stats is not None
    assert "before" in answer.stats


async def test_a_complete_answer_has_nothing_to_continue(stage: Stage) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "Whole."))
    await stage.pilot.press("alt+up", "alt+c")
    await stage.see("nothing to continue")
    assert len(stage.engine.submitted()) == 1


async def test_an_answer_cut_at_the_token_limit_can_be_continued(stage: Stage) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "It goes on"), reason=LENGTH)
    await stage.pilot.press("alt+up", "alt+c")
    await stage.until(lambda: stage.engine.submitted()[-1].continues)


async def test_a_turn_is_deleted_once_confirmed(stage: Stage) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "First answer."), ("two", "Second answer."))
    await stage.pilot.press("alt+up", "alt+up", "alt+up", "ctrl+d")
    await stage.until(lambda: isinstance(stage.app.screen, Confirm))
    await stage.pilot.press("escape")
    await stage.until(lambda: not isinstance(stage.app.screen, Confirm))
    assert len(kept(stage)[0]) == 4
    await stage.pilot.press("ctrl+d")
    await stage.until(lambda: isinstance(stage.app.screen, Confirm))
    await stage.pilot.press("y")
    await stage.until(lambda: "First answer." not in stage.shown())
    assert [turn.text for turn in kept(stage)[0]] == ["two", "Second answer."]
    request = await stage.ask_ready("three")
    assert [message.content for message in stage.engine.submitted()[-1].messages][1:] == [
        "two",
        "Second answer.",
        "three",
    ]
    stage.engine.end_answer(request, "Third.", 1)
    await stage.until(lambda: [turn.position for turn in kept(stage)[0]] == [2, 3, 4, 5])


async def test_a_branch_goes_on_from_an_earlier_turn(stage: Stage) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "First answer."), ("two", "Second answer."))
    await stage.pilot.press("alt+up", "alt+up", "alt+up", "alt+v")
    await stage.until(lambda: "Second answer." not in stage.shown())
    await stage.see("First answer.")
    await stage.ask_ready("other")
    assert [turn.text for turn in kept(stage)[0]] == ["one", "First answer.", "two", "Second answer."]
    assert [turn.text for turn in kept(stage)[1]] == ["one", "First answer.", "other"]


async def test_keys_move_between_turns_and_typing_goes_to_the_prompt(stage: Stage) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "First answer."))
    await stage.pilot.press("alt+up")
    assert isinstance(stage.app.focused, AnswerTurn)
    await stage.pilot.press("alt+up")
    assert isinstance(stage.app.focused, QuestionTurn)
    await stage.pilot.press("H", "i")
    prompt = stage.chat.query_one(Prompt)
    assert (stage.app.focused, prompt.text) == (prompt, "Hi")
    await stage.pilot.press("alt+up", "alt+down")
    assert stage.app.focused is prompt
    await stage.pilot.click(AnswerTurn)
    assert isinstance(stage.app.focused, AnswerTurn)
    await stage.pilot.press("escape")
    assert stage.app.focused is prompt


async def test_the_key_line_tells_what_can_be_done_to_a_turn(stage: Stage) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "First answer."))
    last_line = stage.shown().splitlines()[-1]
    assert "esc Stop" in last_line
    assert "f1 Help" in last_line
    await stage.pilot.press("alt+up")
    await stage.see("alt+e Edit  alt+c Continue  alt+v Branch  ^d Delete  alt+w Copy")
    await stage.pilot.resize_terminal(80, 24)
    await stage.until(lambda: stage.shown().splitlines()[-1].rstrip().endswith("f1 Help"))
    await stage.pilot.click("KeyLine", offset=(2, 0))
    await stage.until(lambda: isinstance(stage.app.screen, EditQuestion))


async def test_copying_says_how_much_and_where_to(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []

    async def program(text: str) -> str:
        taken.append(text)
        return "wl-copy" if len(taken) == 1 else ""

    monkeypatch.setattr("app.chat.clipboard.copy_by_program", program)
    await stage.open_chat()
    await talk(stage, ("one", "Look:\n\n```python\nx = [1]\n\ny = 2\n```\n\nThat is *all*."))
    await stage.pilot.press("alt+up", "alt+w")
    await stage.see("with wl-copy")
    assert taken == ["Look:\n\n```python\nx = [1]\n\ny = 2\n```\n\nThat is *all*."]
    await stage.pilot.press("ctrl+y")
    await stage.see("through the terminal (OSC 52)")
    assert taken[1] == stage.app.clipboard == "x = [1]\n\ny = 2"


async def test_what_happens_to_turns_waits_for_the_answer(stage: Stage) -> None:
    await stage.open_chat()
    await stage.ask_ready("one")
    stage.engine.begin_answer("First", 1)
    await stage.see("First")
    await stage.pilot.press("ctrl+g")
    await stage.see("esc stops it")
    assert len(stage.engine.submitted()) == 1


async def test_a_stopped_question_is_kept_and_can_be_answered_later(stage: Stage) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "First answer."))
    await stage.ask_ready("two")
    await stage.pilot.press("ctrl+n")
    await stage.chat.open_chat(kept(stage)[0][0].chat_id)
    await stage.see("two")
    stage.engine.end_answer(stage.engine.submitted()[-1].request_id, "", 0, CANCELLED)
    await stage.until(lambda: kept(stage)[0][-1].state == STOPPED)
    await stage.pilot.press("ctrl+g")
    await stage.until(lambda: len(stage.engine.submitted()) == 3)
    assert stage.engine.submitted()[-1].messages[-1].content == "two"


async def test_an_approximate_context_is_named(stage: Stage) -> None:
    await stage.open_chat()
    request = await stage.ask_ready("one")
    stage.engine.end_answer(request, "Answer.", 1, label=LABEL_APPROX_CONTEXT)
    await stage.see("exact on approximate context")
    await stage.see("under EXACT, ctrl+g answers again")


async def test_an_answer_on_approximate_context_is_given_again_on_an_exact_one(stage: Stage) -> None:
    await stage.open_chat()
    request = await stage.ask_ready("one")
    stage.engine.end_answer(request, "Answer.", 1, label=LABEL_APPROX_CONTEXT)
    await stage.see("exact on approximate context")
    await stage.pilot.press("ctrl+g")
    await stage.until(lambda: len(stage.engine.submitted()) == 2)
    again = stage.engine.submitted()[1]
    assert again.recomputes
    stage.engine.end_answer(again.request_id, "Exactly.", 1)
    await stage.see("Exactly.")
    assert "exact on approximate context" not in stage.shown()
    await stage.pilot.press("ctrl+g")
    await stage.until(lambda: len(stage.engine.submitted()) == 3)
    assert not stage.engine.submitted()[2].recomputes


async def test_under_approx_nothing_is_computed_anew(stage: Stage) -> None:
    await stage.open_chat()
    request = await stage.ask_ready("one")
    stage.engine.end_answer(request, "Answer.", 1, label=LABEL_APPROX_CONTEXT)
    await stage.see("exact on approximate context")
    await stage.pilot.press("f5")
    await stage.see("≈ APPROX")
    await stage.pilot.press("ctrl+g")
    await stage.until(lambda: len(stage.engine.submitted()) == 2)
    assert not stage.engine.submitted()[1].recomputes


@pytest.mark.parametrize("saved_settings", ['[keys]\n"chat.regenerate" = "alt+r"\n"turn.later" = "alt+n"\n'])
async def test_what_is_told_names_the_users_own_keys(stage: Stage) -> None:
    await stage.open_chat()
    request = await stage.ask_ready("one")
    stage.engine.end_answer(request, "Answer.", 1, label=LABEL_APPROX_CONTEXT)
    await stage.see("under EXACT, alt+r answers again")
    await stage.pilot.press("alt+r")
    await stage.until(lambda: len(stage.engine.submitted()) == 2)
    stage.engine.end_answer(stage.engine.submitted()[1].request_id, "Exactly.", 1)
    await stage.see("left and alt+n show the others")
    row = next(row for row in setting_words.ALL_ROWS if row.key == "keys.turn.later")
    stage.app.change_setting(row, None)
    await stage.see("left and right show the others")
