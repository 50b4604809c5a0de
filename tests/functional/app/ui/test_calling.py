"""The user is called at the end of an answer: when the terminal is not in front, or the answer took long."""

from __future__ import annotations

import pytest

from engine.events import CANCELLED
from tests.functional.app.conftest import Stage


@pytest.fixture
def sent(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was sent to the terminal to call the user."""
    sequences: list[str] = []
    monkeypatch.setattr(stage.app, "send_to_terminal", lambda sequence: sequences.append(sequence))
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("TMUX", "STY", "VTE_VERSION"):
        monkeypatch.delenv(name, raising=False)
    return sequences


async def _answer(stage: Stage, reason: str = "stop", *, is_in_front: bool = True) -> None:
    request = await stage.ask_ready("one")
    stage.engine.begin_answer("Yes", 1)
    await stage.see("Yes")
    stage.app.app_focus = is_in_front
    stage.engine.end_answer(request, "Yes.", 2, reason)
    await stage.until(lambda: not stage.chat.flow.is_busy)


@pytest.mark.parametrize("saved_settings", ['[screen]\nnotify = "bell"\n'])
async def test_only_what_the_user_may_not_see_is_told(stage: Stage, sent: list[str]) -> None:
    await stage.open_chat()
    await _answer(stage)
    assert not sent  # it was short, and the terminal is in front
    await _answer(stage, CANCELLED, is_in_front=False)
    assert not sent  # it was the user who stopped it
    await _answer(stage, is_in_front=False)
    assert sent == ["\x07"]


@pytest.mark.parametrize("saved_settings", ['[screen]\nnotify = "notification"\n'])
async def test_a_long_answer_is_told_in_any_case(
    stage: Stage, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.open_chat()
    stage.settings.hold({"screen.notify_after": 1})
    stage.app.answer_clock.now = iter((0.0, 41.0)).__next__
    await _answer(stage)
    assert sent == ["\x1b]9;moe-chat: The answer is complete, after 41 s.\x1b\\"]


async def test_nothing_is_sent_unless_it_is_asked_for(stage: Stage, sent: list[str]) -> None:
    await stage.open_chat()
    await _answer(stage, is_in_front=False)
    assert not any(sent)
