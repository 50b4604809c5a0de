"""Files in the prompt: completed, counted, sent, folded in the transcript, and kept with the chat."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual import events

from app.storage import import_file
from app.storage.store import ChatStore
from app.ui.screens.sheets import EditQuestion
from app.ui.widgets.prompt import Prompt
from engine.api import Command, CountTokens
from engine.events import TokensCounted
from tests.functional.app.conftest import Stage
from tests.functional.app.fake_engine import FakeEngine, ObedientEngine


class CountingEngine(ObedientEngine):
    """Counts words as tokens, once it may."""

    counts = True

    def answer(self, command: Command) -> None:
        super().answer(command)
        if isinstance(command, CountTokens) and self.counts:
            self.count(command)

    def count(self, command: CountTokens) -> None:
        self.tell(TokensCounted(command.request_id, tuple(len(text.split()) for text in command.texts)))


@pytest.fixture
def engine_type() -> type[FakeEngine]:
    return CountingEngine


@pytest.fixture(autouse=True)
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "notes.md"
    path.write_text("a word of mine\n" * 20)
    return path


async def test_a_file_is_completed_counted_and_sent(stage: Stage, notes: Path, tmp_path: Path) -> None:
    await stage.open_chat()
    await stage.loaded()
    await stage.pilot.press(*"what is @no")
    await stage.see("▸ @notes.md")
    await stage.pilot.press("tab")
    await stage.see("@ notes.md  83 tok")
    await stage.see("of 2,048 tokens")
    await stage.pilot.press(*"about", "enter")
    await stage.until(lambda: stage.engine.submitted())
    sent = stage.engine.submitted()[0].messages[-1].content
    assert sent.startswith("notes.md:\n```md\na word of mine\n")
    assert sent.endswith("```\n\nwhat is @notes.md about")
    await stage.see("▸ notes.md  (20 lines")
    assert "a word of mine" not in stage.shown()
    assert "context left" not in stage.shown()
    stage.engine.end_answer(stage.engine.submitted()[0].request_id, "Words.", 1)
    await stage.see("Words.")
    await stage.pilot.press("alt+up", "alt+up", "enter")
    await stage.see("▾ notes.md")
    await stage.see("a word of mine")
    await stage.pilot.press("enter", "ctrl+f", *"mine")
    await stage.see("20 of 20")
    await stage.see("▾ notes.md")
    await stage.pilot.press("escape")
    # asked again, and differently: as it was, though the file has changed
    notes.write_text("something else")
    await stage.pilot.press("end", "ctrl+g")
    await stage.until(lambda: len(stage.engine.submitted()) == 2)
    assert stage.engine.submitted()[1].messages == stage.engine.submitted()[0].messages
    stage.engine.end_answer(stage.engine.submitted()[1].request_id, "More words.", 2)
    await stage.see("More words.")
    await stage.pilot.press("alt+up", "alt+e")
    await stage.until(lambda: isinstance(stage.app.screen, EditQuestion))
    await stage.pilot.press("!", "enter")
    await stage.until(lambda: len(stage.engine.submitted()) == 3)
    assert "a word of mine" in stage.engine.submitted()[2].messages[-1].content
    await stage.ask(f"/export json {tmp_path / 'chat.json'}")
    await stage.see("Saved to")
    kept = import_file.read_file(tmp_path / "chat.json").chats
    assert all(chat.turns[0].attachments[0].text == "a word of mine\n" * 20 for chat in kept)
    store = ChatStore(stage.db_path)
    assert store.turns(kept[0].chat_id)[0].attachments == kept[0].turns[0].attachments


async def test_until_the_engine_has_counted_there_is_a_dash(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CountingEngine, "counts", False)
    await stage.open_chat()
    await stage.loaded()
    stage.chat.query_one(Prompt).set_text("@notes.md and @property")
    await stage.see("@ notes.md  – tok")
    await stage.see("context left: –")
    await stage.until(lambda: any(isinstance(command, CountTokens) for command in stage.engine.sent))
    (command,) = [command for command in stage.engine.sent if isinstance(command, CountTokens)]
    stage.engine.tell(TokensCounted(command.request_id, (3000,)))
    await stage.see("@ notes.md  3,000 tok")
    await stage.see("too much for the context of 2,048 tokens")
    monkeypatch.setattr(CountingEngine, "counts", True)
    stage.engine.become_ready()  # another model counts otherwise
    await stage.see("@ notes.md  83 tok")


async def test_what_cannot_be_sent_is_given_back_with_the_reason(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "image.bin").write_bytes(b"\0\1\2")
    await stage.open_chat()
    await stage.ask("what is @image.bin")
    await stage.see("write @@image.bin")
    assert stage.chat.query_one(Prompt).whole_text == "what is @image.bin"
    await stage.see("@ image.bin  is not UTF-8 text.")
    await stage.ask("what is @@image.bin")
    await stage.until(lambda: stage.engine.submitted())
    assert stage.engine.submitted()[0].messages[-1].content == "what is @image.bin"


async def test_a_dropped_file_is_named_and_pasted_code_is_not_searched(stage: Stage, notes: Path) -> None:
    await stage.open_chat()
    prompt = stage.chat.query_one(Prompt)
    prompt.post_message(events.Paste(f"'{notes}'"))
    await stage.until(lambda: prompt.text == f"@{notes} ")
    await stage.pilot.press("ctrl+c")
    prompt.post_message(events.Paste("@notes.md\n" * 30))
    await stage.until(lambda: "pasted" in prompt.text)
    await stage.pilot.press("enter")
    await stage.until(lambda: stage.engine.submitted())
    assert "a word of mine" not in stage.engine.submitted()[0].messages[-1].content
