"""How full the context is, as the title says it: always of the chat that is on screen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.events import STOP, TurnEnded
from tests.functional.app.conftest import Stage
from tests.functional.app.fake_engine import READY, snapshot, stats

QUESTION, ANSWER = "q" * 200, "a" * 200


async def _answered(stage: Stage, prompt_tok: int, new_tok: int) -> None:
    request = await stage.ask_ready(QUESTION)
    stage.engine.snapshot = replace(snapshot(2), context_used_tok=prompt_tok)
    await stage.see(f"ctx {prompt_tok}/2k")
    stage.engine.tell(TurnEnded(request, STOP, replace(stats(new_tok), prompt_tok=prompt_tok), ANSWER))
    await stage.until(lambda: not stage.chat.flow.is_busy)
    await stage.see(f"ctx {prompt_tok + new_tok}/2k")


async def test_the_meter_follows_the_chat(stage: Stage) -> None:
    await stage.open_chat()
    await _answered(stage, 300, 100)
    first = stage.chat.flow.conversation.chat_id
    await _answered(stage, 500, 100)
    await stage.pilot.press("ctrl+n")
    await stage.until(lambda: stage.chat.flow.conversation.chat_id != first)
    await stage.until(lambda: "ctx 600/2k" not in stage.shown())
    await stage.chat.open_chat(first)
    await stage.see("ctx 600/2k")
    stage.chat.action_delete_turn()
    await stage.asked_about("q" * 20)
    await stage.pilot.press("y")
    await stage.until(lambda: len(stage.chat.flow.conversation.exchanges) == 1)
    await stage.see("ctx 400/2k")


async def test_an_estimate_is_marked(stage: Stage) -> None:
    await stage.open_chat()
    await _answered(stage, 300, 100)
    await stage.ask("/system " + "s" * 4000)
    await stage.see("ctx ~")


@pytest.mark.parametrize(("choice", "told"), [("off", "off"), ("default", None)])
async def test_thinking_is_as_chosen_for_the_chat_or_as_the_model_has_it(
    stage: Stage, choice: str, told: str | None
) -> None:
    await stage.open_chat()
    stage.engine.tell(replace(READY, thinking_choices=("off", "on")))
    await stage.until(lambda: stage.bridge.ready is not None and stage.bridge.ready.thinking_choices)
    stage.chat.flow.thinking = "on"
    await stage.ask(f"/thinking {choice}")
    await stage.see(f"Thinking: {choice}")
    await stage.ask_ready("why")
    assert stage.engine.submitted()[-1].thinking == told
