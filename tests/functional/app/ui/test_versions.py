"""Every version of a chat is seen and reached; none that is empty is left behind."""

from __future__ import annotations

import pytest
from textual.widgets import OptionList

from app.chat.versions import version_rows
from app.storage.records import ChatRecord, TurnRecord
from app.ui.screens.versions import VersionsScreen
from engine.events import CANCELLED
from tests.functional.app.conftest import Stage
from tests.functional.app.ui.test_turns import kept, talk


async def _again(stage: Stage, text: str) -> None:
    before = len(stage.engine.submitted())
    await stage.pilot.press("ctrl+g")
    await stage.until(lambda: len(stage.engine.submitted()) > before)
    stage.engine.end_answer(stage.engine.submitted()[-1].request_id, text, 2)
    await stage.see(text)


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20)])
async def test_the_tree_shows_every_version_and_goes_to_one(stage: Stage) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "First answer."))
    await _again(stage, "Another answer.")
    await _again(stage, "A third one.")
    await stage.see("version 3 of 3")
    await stage.pilot.press("alt+t")
    await stage.until(lambda: isinstance(stage.app.screen, VersionsScreen))
    await stage.see("└─ version 3 · here · answer: A third one.")
    tree = stage.app.screen.query_one(OptionList)
    assert [tree.highlighted, len(tree.options)] == [2, 3]
    await stage.pilot.press("up", "enter")
    await stage.see("Another answer.")
    in_title = "v2/3" if stage.app.size.width == 60 else "version 2 of 3"
    await stage.until(lambda: in_title in stage.shown().splitlines()[0])
    await stage.ask("/versions")
    await stage.until(lambda: isinstance(stage.app.screen, VersionsScreen))
    await stage.pilot.press("escape")
    await stage.until(lambda: not isinstance(stage.app.screen, VersionsScreen))


async def test_one_version_is_no_tree(stage: Stage) -> None:
    await stage.open_chat()
    await stage.ask("/versions")
    await stage.see("This chat has one version.")


async def test_a_branch_without_a_turn_of_its_own_is_not_left_behind(stage: Stage) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "First answer."))
    await stage.pilot.press("alt+up", "alt+v")
    await stage.see("version 2 of 2")
    assert len(kept(stage)) == 1
    parent_id = stage.chat.flow.conversation.chat.parent_chat_id
    assert parent_id is not None
    await stage.chat.open_chat(parent_id)
    await stage.until(lambda: "version" not in stage.shown())
    assert stage.chat.flow.version == (1, 1)


async def test_an_answer_stopped_before_its_first_word_is_no_version(stage: Stage) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "First answer."))
    first_id = stage.chat.flow.conversation.chat_id
    await stage.pilot.press("ctrl+g")
    await stage.until(lambda: len(stage.engine.submitted()) == 2)
    await stage.chat.open_chat(first_id)
    stage.engine.end_answer(stage.engine.submitted()[-1].request_id, "", 0, CANCELLED)
    await stage.until(lambda: len(stage.chat.flow.recorder.family()) == 0)
    assert len(kept(stage)) == 1


async def test_a_question_after_a_deleted_or_unanswered_one_keeps_its_versions(stage: Stage) -> None:
    await stage.open_chat()
    request = await stage.ask_ready("never answered")
    stage.engine.end_answer(request, "", 0, CANCELLED)
    await stage.until(lambda: not stage.chat.flow.is_busy)
    await talk(stage, ("two", "Second answer."))
    await stage.pilot.press("alt+up", "alt+up", "alt+e")
    await stage.until(lambda: stage.app.screen.query("#edit-text"))
    await stage.pilot.press("!", "enter")
    await stage.until(lambda: len(stage.engine.submitted()) == 3)
    stage.engine.end_answer(stage.engine.submitted()[-1].request_id, "Better.", 1)
    await stage.see("Better.")
    await stage.pilot.press("alt+up", "alt+up", "left")
    await stage.see("Second answer.")
    await stage.see("version 1 of 2")
    await stage.pilot.press("right")
    await stage.see("Better.")


def test_a_tree_of_linked_chats_has_each_once_even_in_a_circle() -> None:
    def chat(name: str, parent: str | None = None, at: int | None = None) -> tuple[ChatRecord, list[TurnRecord]]:
        record = ChatRecord("", "", "", chat_id=name, created_at=name, parent_chat_id=parent, branched_at=at)
        return record, [TurnRecord(name, 0, "user", f"question {name}"), TurnRecord(name, 1, "assistant", name * 3)]

    rows = version_rows([chat("a"), chat("b", "a", 0), chat("c", "b", 0), chat("d", "a", -1), chat("e", "b", 1)])
    assert [(row.lines, row.chat_id, row.number, row.begins) for row in rows] == [
        ("", "a", 1, "question a"),
        ("├─ ", "d", 4, "question d"),
        ("├─ ", "b", 2, "bbb"),
        ("│  └─ ", "e", 5, ""),
        ("└─ ", "c", 3, "ccc"),
    ]
    circle = version_rows([chat("a", "c", 0), chat("b", "a", 0), chat("c", "b", 0)])
    assert sorted(row.chat_id for row in circle) == ["a", "b", "c"]
    circle = version_rows([chat("a", "c", 0), chat("b", "a", 0), chat("c", "b", 0), chat("d", "b", 0)])
    assert sorted(row.chat_id for row in circle) == ["a", "b", "c", "d"]
