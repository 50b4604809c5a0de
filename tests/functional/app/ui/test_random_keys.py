"""Random keys, words and pastes: what was typed into the prompt stays there, was sent, or comes back; and no chat
disappears without its own confirmation."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from textual import events
from textual.widgets import Input, TextArea

from app.storage.records import ASSISTANT, USER, ChatRecord, TurnRecord
from app.storage.store import ChatStore
from app.ui.screens.chat import ChatScreen
from app.ui.screens.confirm import Confirm
from app.ui.widgets.prompt import Prompt
from tests.functional.app.conftest import Stage
from tests.functional.app.fake_engine import FakeEngine
from tests.functional.app.scripted_engine import ScriptedEngine

_KEYS = (
    *("enter", "escape", "tab", "shift+tab", "up", "down", "left", "right", "home", "end", "pageup", "pagedown"),
    *("alt+up", "alt+down", "alt+e", "alt+c", "alt+v", "alt+w", "alt+t", "alt+i", "alt+1", "alt+2", "ctrl+home"),
    *("ctrl+b", "ctrl+c", "ctrl+d", "ctrl+f", "ctrl+g", "ctrl+n", "ctrl+r", "ctrl+t", "ctrl+u", "ctrl+x", "ctrl+j"),
    *("f1", "f3", "f4", "f5", "f6", "f7", "y", "y", "y"),
)
_DELETING = ("ctrl+d", "ctrl+u", "ctrl+x")

_MAX_UNDONE = 60
"""What the prompt can take back, and some more."""


class QuickEngine(ScriptedEngine):
    """Loads at once, answers fast."""

    def __init__(self) -> None:
        super().__init__(load_s=0.01, token_s=0.005)


@pytest.fixture
def engine_type() -> type[FakeEngine]:
    return QuickEngine


class Session:
    """Presses random keys, and knows which words must not be lost."""

    def __init__(self, stage: Stage, history: Path, seed: int) -> None:
        self._stage, self._history, self._chance = stage, history, random.Random(seed)
        self._num_words = 0
        self.words: set[str] = set()
        """Typed into the prompt or another wording of a question."""
        self.log: list[str] = []

    async def step(self) -> None:
        kind = self._chance.random()
        if kind < 0.3:
            await self._write(self._word(), is_paste=kind < 0.1)
        else:
            await self._press(self._chance.choice(_KEYS))

    def _word(self) -> str:
        self._num_words += 1
        return f"w{self._num_words}x "

    async def _write(self, word: str, *, is_paste: bool) -> None:
        """Type or paste a word: it stands in the text field that has the focus then."""
        self.log.append(word)
        self._split()
        app = self._stage.app
        if is_paste:
            app.post_message(events.Paste(word))
        else:
            for character in word:
                app.post_message(events.Key("space" if character == " " else character, character))
        await self._stage.until(lambda: word.strip() in self._now(), f"{self.log}: not in a text field")
        if isinstance(app.focused, TextArea):
            self.words.add(word.strip())

    def _split(self) -> None:
        """Text is about to come where the cursor is: a word around it is none any more."""
        for field in [field for screen in self._stage.app.screen_stack for field in screen.query(TextArea)]:
            row, column = field.cursor_location
            line = field.document.get_line(row)
            before, after = line[:column].split(" ")[-1], line[column:].split(" ")[0]
            if before and after:
                self.words -= {word for word in self.words if word in before + after}

    def _now(self) -> str:
        """What the focused field holds."""
        focused = self._stage.app.focused
        if isinstance(focused, Prompt):
            return focused.whole_text
        return focused.text if isinstance(focused, TextArea) else focused.value if isinstance(focused, Input) else ""

    def _recalled(self) -> str:
        lines = self._history.read_text().splitlines() if self._history.exists() else []
        return " ".join(json.loads(line) for line in lines)

    async def _press(self, key: str) -> None:
        if key in _DELETING and isinstance(self._stage.app.focused, TextArea):
            return  # there the user means to delete
        self.log.append(key)
        if key == "ctrl+j":
            self._split()
        before, dialog = self._kept(), self._stage.app.screen
        named = str(dialog.query("Static").last().render()) if isinstance(dialog, Confirm) else ""
        self._stage.app.post_message(events.Key(key, None))
        if isinstance(dialog, Confirm):
            await self._stage.until(lambda: self._stage.app.screen is not dialog)
        await self._stage.pilot.pause()  # until it is handled: a key that is late would split the next word
        if not (key == "y" and isinstance(dialog, Confirm)):
            there = set(" ".join([*self._kept().values(), *self._prompts()]).split())
            gone = [text for text in before.values() if not set(text.split()) <= there]
            assert not gone, f"{self.log} deleted {gone} ({named})"

    def _kept(self) -> dict[str, str]:
        """The texts of every chat that is kept, by its id."""
        reader = ChatStore(self._stage.db_path)
        kept = {chat.chat_id: " ".join(turn.text for turn in reader.turns(chat.chat_id)) for chat in reader.chats()}
        reader.close()
        return kept

    def _prompts(self) -> list[str]:
        """What stands in the prompt, which takes back a question that waited."""
        return [prompt.whole_text for screen in self._stage.app.screen_stack for prompt in screen.query(Prompt)]

    def _restored(self) -> str:
        """The texts of everything that was deleted, once it is restored."""
        store = ChatStore(self._stage.db_path)
        for deletion in store.bin.deletions():
            store.bin.restore(deletion.deletion_id)
        store.close()
        return " ".join(self._kept().values())

    async def everything_left(self) -> str:
        """All text that is sent, stands in the prompt, or can be brought back."""
        pilot = self._stage.pilot
        for _ in range(12):
            if isinstance(self._stage.app.screen, ChatScreen) and isinstance(self._stage.app.focused, Prompt):
                break
            await pilot.press("escape")
        prompt = self._stage.chat.query_one(Prompt)
        texts = [prompt.whole_text]
        while (before := prompt.whole_text) is not None:
            prompt.move_cursor(prompt.document.end)
            await pilot.press("down")
            texts.append(prompt.whole_text)
            if prompt.whole_text == before:
                break
        for _ in range(_MAX_UNDONE):
            prompt.undo()
            texts.append(prompt.whole_text)
        return " ".join([*texts, *self._kept().values(), self._recalled(), self._restored()])


async def _play(stage: Stage, tmp_path: Path, seed: int, num_steps: int) -> None:
    store = ChatStore(stage.db_path)
    for number in range(3):
        chat = ChatRecord("maths", "", "demo")
        turns = [TurnRecord(chat.chat_id, at, (USER, ASSISTANT)[at], f"kept {number}") for at in range(2)]
        store.save_whole(chat, turns)
    store.close()
    await stage.open_chat()
    session = Session(stage, tmp_path / "data" / "prompts.jsonl", seed)
    for _ in range(num_steps):
        await session.step()
    left = await session.everything_left()
    lost = {word for word in session.words if word not in left}
    assert not lost, f"{session.log} lost {lost}"


@pytest.mark.parametrize("seed", range(8))
async def test_random_keys_lose_nothing(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.chdir(tmp_path)
    await _play(stage, tmp_path, seed, 25)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8, 520))
async def test_many_random_keys_lose_nothing(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.chdir(tmp_path)
    await _play(stage, tmp_path, seed, 200)
