"""Reading a chat: thinking, finding, the end of the context, chats that were kept, long chats, unusual text."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from textual.widgets import Input

from app.storage.records import ASSISTANT, PARTIAL, USER, ChatRecord, TurnRecord
from app.storage.store import ChatStore
from app.ui.screens.chats import ChatsScreen
from app.ui.widgets.answer_text import FinishedAnswer
from app.ui.widgets.find_bar import FindBar
from app.ui.widgets.prompt import Prompt
from app.ui.widgets.thinking_block import ThinkingBlock
from app.ui.widgets.transcript import Transcript
from engine.api import SetDomain
from engine.events import CONTEXT_FULL, STOP, Failed, TextDelta, TurnEnded
from tests.functional.app.conftest import Stage
from tests.functional.app.fake_engine import snapshot, stats
from tests.functional.app.ui.test_turns import kept, talk


def keep_chat(stage: Stage, num_exchanges: int, answer: str, **last: object) -> str:
    """A chat in the store; returns its id."""
    chat = ChatRecord("code", "", "some model")
    store = ChatStore(stage.db_path)
    turns = []
    for number in range(num_exchanges):
        turns.append(TurnRecord(chat.chat_id, 2 * number, USER, f"question {number}"))
        turns.append(TurnRecord(chat.chat_id, 2 * number + 1, ASSISTANT, f"Answer {number}. {answer}"))
    turns[-1] = replace(turns[-1], **last)
    store.save_whole(chat, turns)
    store.close()
    return chat.chat_id


async def test_thinking_is_folded_with_its_length_and_time(stage: Stage) -> None:
    await stage.open_chat()
    request = await stage.ask_ready("why")
    stage.engine.tell(TextDelta(request, "First, some secret", 3, is_thinking=True))
    await stage.see("▸ thinking … (3 tok")
    assert "secret" not in stage.shown()
    stage.engine.tell(TextDelta(request, " thoughts.", 5, is_thinking=True), TextDelta(request, "Because.", 7))
    await stage.see("Because.")
    counted = replace(stats(7), thinking_tok=5, thinking_ms=3100.0)
    stage.engine.tell(TurnEnded(request, STOP, counted, "Because.", "First, some secret thoughts."))
    await stage.see("▸ thinking (5 tok, 3.1 s)")
    await stage.pilot.press("ctrl+t")
    await stage.see("First, some secret thoughts.")
    await stage.pilot.press("ctrl+t")
    await stage.until(lambda: "secret" not in stage.shown())
    await stage.pilot.click(ThinkingBlock)
    await stage.see("First, some secret thoughts.")
    assert kept(stage)[0][1].thinking == "First, some secret thoughts."
    await stage.ask_ready("and")
    assert stage.engine.submitted()[-1].messages[-2].thinking == "First, some secret thoughts."


async def test_found_text_is_counted_and_stepped_through(stage: Stage) -> None:
    await stage.open_chat()
    await talk(stage, ("a needle", "No match."), ("two", "One Needle, two needles."), ("three", "Nothing."))
    await stage.pilot.press("ctrl+f", *"needle")
    await stage.see("3 of 3")
    await stage.pilot.press("enter")
    await stage.see("1 of 3")
    await stage.pilot.press("up")
    await stage.see("3 of 3")
    await stage.pilot.press("x")
    await stage.see("nothing found")
    await stage.pilot.press("escape")
    assert stage.app.focused is stage.chat.query_one(Prompt)
    assert not stage.chat.query_one(FindBar).display


async def test_text_far_up_in_a_long_chat_is_found_and_shown(stage: Stage) -> None:
    chat_id = keep_chat(stage, 100, "Some words\nand more words.")
    await stage.open_chat()
    await stage.chat.open_chat(chat_id)
    await stage.see("Answer 99.")
    await stage.ask("/find answer 3. some")
    await stage.see("1 of 1")
    await stage.see("Answer 3.")


async def test_what_was_thought_is_found_while_it_is_shown(stage: Stage) -> None:
    chat_id = keep_chat(stage, 20, "Said.", thinking="It may be seven.\n\nSeven it is.")
    await stage.open_chat()
    await stage.chat.open_chat(chat_id)
    await stage.see("Answer 19.")
    await stage.pilot.press("ctrl+f", *"seven")
    await stage.see("nothing found")
    await stage.pilot.press("escape", "ctrl+t", "ctrl+f", "n", "backspace")
    assert stage.chat.query_one("#find-input", Input).value == ""
    await stage.pilot.press(*"seven")
    await stage.see("2 of 2")
    block = next(iter(reversed(stage.chat.query(ThinkingBlock))))
    assert block.line_of_match(0) < block.line_of_match(1)
    stage.chat.query_one("#find-input", Input).value = "thinking"
    await stage.see("nothing found")


async def test_what_was_found_in_a_folded_question_opens_it(stage: Stage) -> None:
    await stage.open_chat()
    await talk(stage, ("\n".join(f"line {number}" for number in range(60)), "No match."))
    await stage.see("enter shows them")
    await stage.pilot.press("ctrl+f", *"line", "space", *"47")
    await stage.see("1 of 1")
    await stage.see("line 47")


async def test_what_was_found_among_the_chats_is_opened_where_it_is(stage: Stage) -> None:
    keep_chat(stage, 100, "Some words.")
    await stage.pilot.press("ctrl+r")
    await stage.until(lambda: isinstance(stage.app.screen, ChatsScreen))
    await stage.pilot.press(*"question", "space", *"37")
    await stage.see("Found in 1 place")
    await stage.pilot.press("enter")
    await stage.see("Answer 37.")
    await stage.see(" of 102")
    assert [entry.position for entry in stage.chat.transcript.entries if entry.widget is not None].count(74) == 1
    assert stage.app.focused is stage.chat.query_one(Prompt)
    await stage.pilot.press("ctrl+f", "up")
    await stage.see("Answer 36.")
    await stage.pilot.press("ctrl+n")
    await stage.until(lambda: not stage.chat.query_one(FindBar).display)


async def test_a_chat_opened_from_the_first_menu_is_the_only_one(stage: Stage) -> None:
    chat_id = keep_chat(stage, 2, "Some words.")
    await stage.pilot.press("ctrl+r")
    await stage.until(lambda: isinstance(stage.app.screen, ChatsScreen))
    await stage.pilot.press("enter")
    await stage.see("Answer 1.")
    await stage.see("moe-chat · Code")
    assert [command.domain for command in stage.engine.sent if isinstance(command, SetDomain)] == ["code"]
    assert stage.chat.flow.conversation.chat_id == chat_id
    assert len(kept(stage)) == 1


async def test_the_context_warns_in_words_before_it_is_full(stage: Stage) -> None:
    await stage.open_chat()
    await stage.ask_ready("one")
    assert "nearly full" not in stage.shown()
    stage.engine.snapshot = replace(snapshot(7), context_used_tok=1800)
    await stage.see("nearly full")
    await stage.see("248 tokens are left")
    stage.engine.snapshot = replace(snapshot(8), context_used_tok=2048)
    await stage.see("2k/2k")


async def test_what_does_not_fit_is_left_out_only_when_that_is_chosen(stage: Stage) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "First answer."))
    request = await stage.ask_ready("two")
    stage.engine.tell(
        Failed(request, "The context is full", "It does not fit.", "Choose.", is_fatal=False, kind="context_full")
    )
    await stage.has_to_decide("trim")
    await stage.pilot.press("f7", "enter")
    await stage.until(lambda: len(stage.engine.submitted()) == 3)
    submit = stage.engine.submitted()[-1]
    assert submit.trims_oldest
    assert [message.content for message in submit.messages][1:] == ["one", "First answer.", "two"]
    stage.engine.tell(TurnEnded(submit.request_id, STOP, replace(stats(2), left_out_messages=2), "Second."))
    await stage.see("the model no longer sees what is above")
    assert stage.shown().index("First answer.") < stage.shown().index("no longer sees") < stage.shown().index("Second.")
    assert [turn.has_class("-left-out") for turn in stage.chat.transcript.query("QuestionTurn")] == [True, False]
    await stage.ask_ready("three")
    assert stage.engine.submitted()[-1].trims_oldest


async def test_an_answer_cut_by_the_end_of_the_context_can_go_on(stage: Stage) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "First answer."))
    request = await stage.ask_ready("two")
    stage.engine.end_answer(request, "It is cut", 3, CONTEXT_FULL)
    await stage.see("The answer was cut")
    await stage.pilot.press("f7", "enter")
    await stage.until(lambda: len(stage.engine.submitted()) == 3)
    submit = stage.engine.submitted()[-1]
    assert (submit.continues, submit.trims_oldest) == (True, True)


async def test_a_new_chat_takes_the_unanswered_question_along(stage: Stage) -> None:
    await stage.open_chat()
    request = await stage.ask_ready("much")
    stage.engine.tell(Failed(request, "Full", "No.", "", is_fatal=False, kind="context_full"))
    await stage.see("there is no older turn")
    await stage.pilot.press("x", "f7", "enter")
    await stage.until(lambda: stage.chat.query_one(Prompt).text == "much\nx")
    assert stage.chat.flow.conversation.exchanges == []


async def test_a_kept_chat_comes_back_with_what_it_cost(stage: Stage) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "First answer."))
    first = kept(stage)[0][0].chat_id
    await stage.pilot.press("ctrl+n")
    await stage.until(lambda: "First answer." not in stage.shown())
    await stage.chat.open_chat(first)
    await stage.see("First answer.")
    await stage.see("TTFT 412 ms")
    await stage.ask_ready("two")
    assert [message.content for message in stage.engine.submitted()[-1].messages][1:] == ["one", "First answer.", "two"]
    assert [turn.position for turn in kept(stage)[0]] == [0, 1, 2]


async def test_an_answer_whose_writer_died_is_marked_and_can_be_continued(stage: Stage) -> None:
    chat_id = keep_chat(stage, 2, "", text="Half an ans", state=PARTIAL)
    await stage.open_chat()
    await stage.chat.open_chat(chat_id)
    await stage.see("Half an ans")
    await stage.see("interrupted: the app ended")
    await stage.see("moe-chat · Code")
    await stage.pilot.press("alt+up", "alt+c")
    await stage.until(lambda: stage.engine.submitted() and stage.engine.submitted()[0].continues)


async def test_a_chat_that_is_gone_is_said(stage: Stage) -> None:
    await stage.open_chat()
    await stage.chat.open_chat("no such chat")
    await stage.see("That chat was deleted")


def _mounted(transcript: Transcript) -> range:
    """The numbers of the rows that are widgets now."""
    rows = [at for at, entry in enumerate(transcript.entries) if entry.widget is not None]
    return range(min(rows, default=0), max(rows, default=-1) + 1)


async def test_a_chat_of_300_turns_takes_few_widgets_and_all_of_it_can_be_reached(stage: Stage) -> None:
    code = "\n".join(f"def function_{line}(x):\n    return x + {line}" for line in range(10))
    chat_id = keep_chat(stage, 150, f"\n\n```python\n{code}\n```\n\nDone.")
    await stage.open_chat()
    num_before = len(stage.chat.query("*"))
    await stage.chat.open_chat(chat_id)
    await stage.see("Done.")
    transcript = stage.chat.query_one(Transcript)
    assert len(transcript.query("*")) <= 4 * transcript.max_mounted
    assert len(stage.chat.query("*")) <= num_before + 4 * transcript.max_mounted
    num_drawn = sum(answer._strips_width > 0 for answer in transcript.query(FinishedAnswer))
    assert num_drawn <= 4, "what is not seen is not drawn"
    await stage.pilot.press("pageup")
    for _ in range(60):
        transcript.scroll_home(animate=False)
        await stage.pilot.pause()
        if _mounted(transcript).start == 0:
            break
    await stage.until(lambda: _mounted(transcript).start == 0)
    transcript.scroll_home(animate=False)
    await stage.see("question 0")
    assert len(transcript.query("*")) <= 4 * (transcript.max_mounted + 1)
    await stage.pilot.press("end")
    await stage.until(lambda: _mounted(transcript).stop == len(transcript.entries))
    await stage.see("Done.")
    await stage.pilot.press("ctrl+home")
    await stage.see("question 0")


async def test_what_is_on_screen_stays_when_earlier_turns_come(stage: Stage) -> None:
    chat_id = keep_chat(stage, 100, "\n\nmore\n\nand more")
    await stage.open_chat()
    await stage.chat.open_chat(chat_id)
    transcript = stage.chat.query_one(Transcript)
    await stage.see("Answer 99.")
    first = _mounted(transcript).start
    top = transcript.entries[first].widget
    assert top is not None
    transcript.scroll_to(y=5, animate=False)
    await stage.pilot.pause()
    assert _mounted(transcript).start == first
    place = top.region.y
    transcript.scroll_to(y=3, animate=False)
    await stage.until(lambda: _mounted(transcript).start < first)
    await stage.pilot.pause()
    assert top.region.y == place + 2


UNUSUAL = [
    "[red]not red[/red] [@click=app.quit]x[/]",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b[2J",
    "emoji 👩‍👩‍👧 🇫🇷 ✈️ and 漢字かな交じり文 and 한국어",
    "שלום עולם and مرحبا بالعالم",
    "nul \x00 bell \x07 c1 \x9b31m bidi \u202eevil\u202c",
    "a\tb \r\n c \ud800 lone",
    "<script>alert(1)</script> &amp; </s><|im_end|>",
]


@pytest.mark.parametrize("text", UNUSUAL)
async def test_unusual_text_is_shown_and_never_obeyed(stage: Stage, text: str) -> None:
    await stage.open_chat()
    request = await stage.ask_ready(text)
    for number, character in enumerate(text):
        stage.engine.tell(TextDelta(request, character, number + 1))
    await stage.until(lambda: stage.chat.flow.live is not None and stage.chat.flow.live.num_tok == len(text))
    stage.engine.tell(TurnEnded(request, STOP, stats(5), text, text))
    await stage.until(lambda: stage.chat.query(FinishedAnswer))
    await stage.pilot.press("ctrl+t")
    await stage.see("5 tok")
    shown = stage.shown()
    assert not set(shown) & {"\x1b", "\x00", "\x07", "\x9b", "\u202e", "\ud800"}
    for word in ("[red]not red[/red]", "漢字かな交じり文", "<script>", "␛[31mred", "שלום"):
        assert word not in text.replace("\x1b", "␛") or shown.count(word) >= 2
    assert stage.app.is_running
    await asyncio.sleep(0)
