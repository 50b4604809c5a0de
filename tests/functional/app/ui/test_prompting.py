"""Typing: history, pasting, commands, the editor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from textual import events

from app.ui.screens.chats import ChatsScreen
from app.ui.screens.help import HelpScreen
from app.ui.widgets.command_list import CommandList
from app.ui.widgets.find_bar import FindBar
from app.ui.widgets.prompt import Prompt
from engine.api import SetMode, SetStrategy
from engine.config import APPROX
from tests.functional.app.conftest import Stage
from tests.functional.app.ui.test_turns import kept, talk


async def test_what_was_sent_is_recalled_in_another_run(stage: Stage, tmp_path: Path) -> None:
    history = tmp_path / "data" / "prompts.jsonl"
    history.parent.mkdir(parents=True)
    history.write_text(json.dumps("from the last run\nsecond line") + "\n")
    await stage.open_chat()
    prompt = stage.chat.query_one(Prompt)
    await stage.pilot.press("up")
    assert prompt.text == "from the last run\nsecond line"
    await stage.pilot.press("down")
    assert prompt.text == ""
    await stage.ask_ready("now")
    assert [json.loads(line) for line in history.read_text().splitlines()][-1] == "now"


async def test_a_long_paste_is_a_mark_and_sent_whole(stage: Stage) -> None:
    await stage.open_chat()
    text = "\n".join(f"line {number} of what was pasted" for number in range(40_000))
    assert len(text) > 10**6
    prompt = stage.chat.query_one(Prompt)
    await stage.pilot.press("s", "e", "e", ":", "space")
    prompt.post_message(events.Paste(text))
    await stage.until(lambda: prompt.text == "see: [pasted 40,000 lines]")
    await stage.pilot.press("enter")
    await stage.until(lambda: stage.engine.submitted())
    assert stage.engine.submitted()[0].messages[-1].content == "see: " + text
    assert kept(stage)[0][0].text == "see: " + text
    await stage.see("line 3 of what was pasted")
    await stage.see("more of 1,")
    await stage.pilot.press("up")
    assert prompt.text == f"[pasted {40_000:,} lines]"
    await stage.pilot.press("backspace")
    assert prompt.text == ""


async def test_a_short_paste_is_just_text(stage: Stage) -> None:
    await stage.open_chat()
    prompt = stage.chat.query_one(Prompt)
    prompt.post_message(events.Paste("a\r\nb \x1b[31mred"))
    await stage.until(lambda: prompt.text == "a\nb ␛[31mred")


@pytest.mark.parametrize("text", ["", "   ", "\n \n"])
async def test_nothing_is_not_sent(stage: Stage, text: str) -> None:
    await stage.open_chat()
    await stage.ask(text)
    await stage.pilot.pause()
    assert stage.engine.submitted() == []
    assert stage.chat.flow.conversation.exchanges == []


async def test_commands_are_completed_while_they_are_typed(stage: Stage) -> None:
    await stage.open_chat()
    prompt, offered = stage.chat.query_one(Prompt), stage.chat.query_one(CommandList)
    await stage.pilot.press("/")
    await stage.see("/chats")
    await stage.pilot.press("d", "o")
    await stage.see("/domain")
    await stage.pilot.press("tab")
    assert prompt.text == "/domain "
    await stage.see("/domain code")
    await stage.pilot.press("c", "o", "d", "tab")
    assert prompt.text == "/domain code"
    await stage.pilot.press("enter")
    await stage.see("moe-chat · Code")
    assert not offered.display
    assert prompt.text == ""


async def test_a_highlighted_command_is_done_at_once(stage: Stage) -> None:
    await stage.open_chat()
    await stage.pilot.press("/", "h", "e", "enter")
    await stage.until(lambda: isinstance(stage.app.screen, HelpScreen))


async def test_an_unknown_command_is_said_and_not_sent(stage: Stage) -> None:
    await stage.open_chat()
    await stage.ask("/finde x")
    await stage.see("There is no command /finde. Did you mean /find?")
    assert stage.chat.query_one(Prompt).text == "/finde x"
    assert stage.engine.submitted() == []


async def test_two_slashes_send_one(stage: Stage) -> None:
    await stage.open_chat()
    await stage.ask_ready("//etc is a folder")
    assert stage.engine.submitted()[0].messages[-1].content == "/etc is a folder"


async def test_commands_with_something_behind_them(stage: Stage, tmp_path: Path) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "First answer."))
    await stage.ask("/mode approx")
    await stage.until(lambda: SetMode(APPROX) in stage.engine.sent)
    await stage.ask("/strategy moe-infinity")
    await stage.until(lambda: SetStrategy("moe-infinity") in stage.engine.sent)
    await stage.see(" · moe-infinity")
    await stage.ask("/system Answer in one word.")
    await stage.see("The system prompt holds from")
    await stage.ask_ready("two")
    assert stage.engine.submitted()[-1].messages[0].content == "Answer in one word."
    stage.engine.end_answer(stage.engine.submitted()[-1].request_id, "Two.", 1)
    await stage.see("Two.")
    await stage.ask("/title About numbers")
    await stage.see("“About numbers”")
    await stage.ask(f"/export markdown {tmp_path / 'chat.md'}")
    await stage.until((tmp_path / "chat.md").exists)
    assert "# About numbers" in (tmp_path / "chat.md").read_text()
    await stage.ask("/thinking high")
    await stage.see("has no choices of thinking")
    await stage.ask("/find answer")
    await stage.see("1 of 1")
    assert stage.chat.query_one(FindBar).display
    await stage.pilot.press("escape")
    await stage.ask("/stats")
    await stage.see("Statistics of the answer")
    await stage.see("TTFT 412 ms")
    await stage.pilot.press("escape")
    await stage.ask("/open numbers")
    await stage.until(lambda: isinstance(stage.app.screen, ChatsScreen))
    await stage.see("About numbers")


async def test_the_message_is_written_in_the_editor(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf "%s, written" "$(cat "$1")" > "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))
    await stage.open_chat()
    prompt = stage.chat.query_one(Prompt)
    prompt.set_text("a draft")
    monkeypatch.setattr(type(stage.app), "suspend", lambda self: _Nothing())
    await stage.pilot.press("ctrl+e")
    await stage.until(lambda: prompt.text == "a draft, written")
    monkeypatch.setenv("VISUAL", "no-such-editor")
    await stage.pilot.press("ctrl+e")
    await stage.see("Set $VISUAL or $EDITOR")
    assert prompt.text == "a draft, written"


class _Nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


async def test_what_was_typed_is_taken_back_and_typed_again(stage: Stage) -> None:
    await stage.open_chat()
    prompt = stage.chat.query_one(Prompt)
    await stage.pilot.press(*"one", "space", *"two", "ctrl+w")
    assert prompt.text == "one "
    await stage.pilot.press("ctrl+underscore")
    assert prompt.text == "one two"
    await stage.pilot.press("alt+y")
    assert prompt.text == "one "
    await stage.pilot.press("alt+z")
    assert prompt.text == "one two"


async def test_taking_back_many_lines_keeps_the_cursor_in_the_text(stage: Stage) -> None:
    await stage.open_chat()
    prompt = stage.chat.query_one(Prompt)
    prompt.set_text("\n".join(str(number) for number in range(18)))
    await stage.pilot.pause()
    await stage.pilot.press("alt+z")
    assert (prompt.text, prompt.cursor_location) == ("", (0, 0))
    await stage.pilot.press("alt+y")
    assert prompt.text.count("\n") == 17


async def test_up_and_down_move_within_a_wrapped_line_before_they_recall(stage: Stage) -> None:
    await stage.open_chat()
    await stage.ask("an earlier question")
    prompt, text = stage.chat.query_one(Prompt), "word " * 40 + "end"
    prompt.set_text(text)
    await stage.until(lambda: prompt.size.height >= 3)
    rows = prompt.size.height
    await stage.pilot.press(*["up"] * (rows - 1))
    assert prompt.text == text
    assert 0 < prompt.cursor_location[1] < len(text) // (rows - 1)
    await stage.pilot.press("up")
    assert prompt.text == "an earlier question"
    await stage.pilot.press("down")
    assert prompt.text == text
    await stage.pilot.press("up", "down")
    assert prompt.text == text
    assert prompt.cursor_location == (0, len(text))


async def test_no_key_selects_what_is_typed_to_be_replaced_unseen(stage: Stage) -> None:
    await stage.open_chat()
    prompt = stage.chat.query_one(Prompt)
    prompt.set_text("a long draft")
    await stage.pilot.press("f7", "x")
    assert prompt.text == "a long draftx"


async def test_the_keys_that_delete_to_an_end_of_the_line_mean_the_line_as_it_was_typed(stage: Stage) -> None:
    await stage.open_chat()
    prompt, text = stage.chat.query_one(Prompt), "word " * 40 + "end"
    prompt.set_text(f"first\n{text}")
    await stage.until(lambda: prompt.size.height >= 4)
    await stage.pilot.press("ctrl+u")
    assert prompt.text == "first\n"
    await stage.pilot.press("alt+z")
    assert prompt.text == f"first\n{text}"
    prompt.move_cursor((1, 5))
    await stage.pilot.press("ctrl+k")
    assert prompt.text == "first\nword "
    await stage.pilot.press("home", "ctrl+u")
    assert prompt.text == "firstword "


async def test_a_list_of_commands_tells_how_many_there_are(stage: Stage) -> None:
    await stage.open_chat()
    await stage.pilot.press("/", "down")
    await stage.see("2 of ")
    await stage.pilot.press("c", "o", "m")
    await stage.until(lambda: " of " not in stage.chat.query_one(CommandList).render().plain)


async def test_what_is_said_already_is_not_said_below_itself(stage: Stage) -> None:
    await stage.open_chat()
    for _ in range(3):
        await stage.ask("/presets")
        await stage.see("There is no command")
    assert len(stage.app.screen.query("Toast")) == 1
