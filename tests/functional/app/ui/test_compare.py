"""EXACT and APPROX beside each other: the other answer is a version, labels are the records', the mode comes back."""

from __future__ import annotations

import pytest

from app.ui.screens.chat import ChatScreen
from app.ui.screens.compare import CompareScreen
from app.ui.widgets.prompt import Prompt
from engine.api import SetMode, Submit
from engine.config import APPROX, EXACT
from engine.events import LABEL_APPROX, LABEL_EXACT
from tests.functional.app.conftest import Stage
from tests.functional.app.ui.test_turns import kept, talk


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_the_other_answer_is_written_and_both_are_shown(stage: Stage) -> None:
    await stage.open_chat()
    await talk(stage, ("capital?", "The capital is Paris."))
    await stage.pilot.press("alt+o")
    await stage.until(lambda: isinstance(stage.app.screen, CompareScreen))
    await stage.until(lambda: len(stage.engine.submitted()) == 2)
    sent = [command for command in stage.engine.sent if isinstance(command, SetMode | Submit)]
    assert sent[-2:] == [SetMode(APPROX), stage.engine.submitted()[1]]
    request = stage.engine.begin_answer("The capital is", 3)
    await stage.see("being written")
    await stage.see("The texts are the same so far.")
    stage.engine.end_answer(request, "The capital is Lyon.", 5, label=LABEL_APPROX)
    await stage.see("The texts differ from word 4 on, in line 1.")
    await stage.see("approximate: ")
    await stage.see("times as long")
    await stage.see("at random")
    shown = stage.shown()
    assert shown.index("◆ EXACT") < shown.index("≈ APPROX")
    assert "Paris." in shown
    assert "Lyon." in shown
    await stage.until(lambda: stage.engine.sent[-1] == SetMode(EXACT))  # as it was before
    await stage.pilot.press("escape")
    await stage.until(lambda: isinstance(stage.app.screen, ChatScreen))
    await stage.see("version 2 of 2")
    assert [turns[-1].text for turns in kept(stage)] == ["The capital is Paris.", "The capital is Lyon."]
    await stage.ask("/compare")  # now both are there
    await stage.until(lambda: isinstance(stage.app.screen, CompareScreen))
    await stage.see("The texts differ from word 4 on")
    assert len(stage.engine.submitted()) == 2


async def test_from_an_approximate_answer_the_exact_one_is_computed_on_an_exact_context(stage: Stage) -> None:
    await stage.open_chat()
    await stage.loaded()
    await stage.pilot.press("f5")
    await stage.until(lambda: stage.bridge.mode == APPROX)
    request = await stage.ask_ready("capital?")
    stage.engine.end_answer(request, "Lyon.", 2, label=LABEL_APPROX)
    await stage.see("Lyon.")
    stage.chat.query_one(Prompt).set_text("half a thought")
    await stage.pilot.press("alt+o")
    await stage.until(lambda: len(stage.engine.submitted()) == 2)
    assert stage.engine.submitted()[1].recomputes
    stage.engine.end_answer(stage.engine.submitted()[1].request_id, "Paris.", 2, label=LABEL_EXACT)
    await stage.see("differ from word 1 on")
    await stage.until(lambda: stage.bridge.mode == APPROX)
    await stage.pilot.press("escape")
    assert stage.chat.query_one(Prompt).text == "half a thought"


async def test_the_mode_that_the_user_chose_meanwhile_stays(stage: Stage) -> None:
    await stage.open_chat()
    await talk(stage, ("capital?", "Paris."))
    await stage.pilot.press("alt+o")
    await stage.until(lambda: len(stage.engine.submitted()) == 2)
    await stage.pilot.press("escape")
    await stage.until(lambda: isinstance(stage.app.screen, ChatScreen) and stage.bridge.mode == APPROX)
    await stage.pilot.press("f5")
    await stage.until(lambda: stage.bridge.mode == EXACT)
    num_sent = len(stage.engine.sent)
    stage.engine.end_answer(stage.engine.submitted()[1].request_id, "Lyon.", 2, label=LABEL_APPROX)
    await stage.see("Lyon.")
    assert stage.bridge.mode == EXACT
    assert SetMode(APPROX) not in stage.engine.sent[num_sent:]


@pytest.mark.parametrize("size", [(80, 24)])
async def test_the_first_line_that_differs_is_brought_on_screen(stage: Stage) -> None:
    shared = "".join(f"line {number}\n" for number in range(60))
    await stage.open_chat()
    stage.engine.end_answer(await stage.ask_ready("capital?"), f"{shared}It is Paris.", 5)
    await stage.see("It is Paris.")
    await stage.pilot.press("alt+o")
    await stage.until(lambda: len(stage.engine.submitted()) == 2)
    request = stage.engine.submitted()[1].request_id
    stage.engine.end_answer(request, f"{shared}It is Lyon.", 5, label=LABEL_APPROX)
    await stage.see("It is Lyon.")
    await stage.see("It is Paris.")
    await stage.see("from word 123 on, in line 61")


async def test_there_is_nothing_to_compare_without_an_answer(stage: Stage) -> None:
    await stage.open_chat()
    await stage.pilot.press("alt+o")
    await stage.see("no finished answer")
