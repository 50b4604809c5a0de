"""Random keys, words and pastes: what was typed into the prompt stays there, was sent, or comes back; and no chat
disappears without its own confirmation."""

from __future__ import annotations

import asyncio
import json
import random
import time
from contextlib import closing
from pathlib import Path

import pytest
from textual import events
from textual.widgets import Input, TextArea

from app.storage.records import ASSISTANT, USER, ChatRecord, TurnRecord
from app.storage.store import ChatStore
from app.ui import chat_app
from app.ui.screens import confirm
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

_KEY_S, _FRAME_S, _BEAT_S, _ALONE_S = 0.3, 0.1, 0.02, 0.002
"""Keys are told to be so far apart. They come faster, and with them the app's clock, and its wait for what follows a
`y`; the screen is drawn less often."""


class QuickEngine(ScriptedEngine):
    """Loads at once, answers fast."""

    def __init__(self) -> None:
        super().__init__(load_s=0.01, ttft_s=0.02, token_s=0.001)


@pytest.fixture
def engine_type(monkeypatch: pytest.MonkeyPatch) -> type[FakeEngine]:
    monkeypatch.setattr("textual.screen.UPDATE_PERIOD", _FRAME_S)
    monkeypatch.setattr(chat_app, "_BEAT_S", _BEAT_S)
    monkeypatch.setattr(confirm, "_ALONE_S", _ALONE_S)
    return QuickEngine


@pytest.fixture
def size(seed: int) -> tuple[int, int]:
    return (120, 40) if seed % 4 == 0 else (80, 24)


class KeptTexts:
    """The texts of every chat that is kept, read anew only once something was written."""

    def __init__(self, path: Path) -> None:
        self._store = ChatStore(path, checks_at_open=False)
        self._version = -1
        self._texts: dict[str, str] = {}

    def now(self) -> dict[str, str]:
        """By the chat's id."""
        version = self._store.data_version()
        if version != self._version:
            chats = self._store.chats()
            self._texts = {
                chat.chat_id: " ".join(turn.text for turn in self._store.turns(chat.chat_id)) for chat in chats
            }
            self._version = version
        return self._texts

    def with_deleted(self) -> str:
        """All that is kept, once everything that was deleted is restored."""
        for deletion in self._store.bin.deletions():
            self._store.bin.restore(deletion.deletion_id)
        self._version = -1
        return " ".join(self.now().values())

    def close(self) -> None:
        self._store.close()


async def _idle() -> None:
    """Until every task of this loop waits for a timer, or for something outside."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(0)
    while loop._ready:  # type: ignore[attr-defined]
        await asyncio.sleep(0)


class Session:
    """Presses random keys, and knows which words must not be lost."""

    def __init__(self, stage: Stage, kept: KeptTexts, history: Path, seed: int) -> None:
        self._stage, self._kept, self._history, self._chance = stage, kept, history, random.Random(seed)
        self._pressed_at = time.monotonic()
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
        if is_paste:
            await self._send(events.Paste(word))
        else:
            await self._send(*(events.Key("space" if character == " " else character, character) for character in word))
        await self._stage.until(lambda: word.strip() in self._now(), f"{self.log}: not in a text field")
        if isinstance(self._stage.app.focused, TextArea):
            self.words.add(word.strip())

    async def _send(self, *typed: events.Key | events.Paste) -> None:
        """Have the app take in what arrives at once, some time after what came before."""
        self._pressed_at += _KEY_S
        for event in typed:
            event.time = self._pressed_at
            self._stage.app.post_message(event)
        await self._settle()

    async def _settle(self) -> None:
        """Until the app has nothing left to do but to wait. What waits for the screen to be drawn need not."""
        await _idle()
        screen = self._stage.app.screen
        if screen._callbacks:
            screen._on_timer_update()
            await _idle()

    def _split(self) -> None:
        """Text is about to come where the cursor is: a word around it is none any more."""
        for field in [field for shown in self._stage.app.screen_stack for field in shown.query(TextArea)]:
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
        if key in ("ctrl+j", "y"):
            self._split()
        before, dialog = self._kept.now(), self._stage.app.screen
        named = str(dialog.query("Static").last().render()) if isinstance(dialog, Confirm) else ""
        await self._send(events.Key(key, None))
        if isinstance(dialog, Confirm):
            await self._stage.until(lambda: self._stage.app.screen is not dialog)
            await self._settle()
        after = self._kept.now()
        if after is not before and not (key == "y" and isinstance(dialog, Confirm)):
            there = set(" ".join([*after.values(), *self._prompts()]).split())
            gone = [text for text in before.values() if not set(text.split()) <= there]
            assert not gone, f"{self.log} deleted {gone} ({named})"

    def _prompts(self) -> list[str]:
        """What stands in the prompt, which takes back a question that waited."""
        return [prompt.whole_text for screen in self._stage.app.screen_stack for prompt in screen.query(Prompt)]

    async def everything_left(self) -> str:
        """All text that is sent, stands in the prompt, or can be brought back."""
        for _ in range(12):
            if isinstance(self._stage.app.screen, ChatScreen) and isinstance(self._stage.app.focused, Prompt):
                break
            await self._send(events.Key("escape", None))
        prompt = self._stage.chat.query_one(Prompt)
        texts = [prompt.whole_text]
        while (before := prompt.whole_text) is not None:
            prompt.move_cursor(prompt.document.end)
            await self._send(events.Key("down", None))
            texts.append(prompt.whole_text)
            if prompt.whole_text == before:
                break
        for _ in range(_MAX_UNDONE):
            prompt.undo()
            texts.append(prompt.whole_text)
        return " ".join([*texts, *self._kept.now().values(), self._recalled(), self._kept.with_deleted()])


async def _play(stage: Stage, tmp_path: Path, seed: int, num_steps: int = 200) -> None:
    with closing(ChatStore(stage.db_path)) as store:
        for number in range(3):
            chat = ChatRecord("maths", "", "demo")
            turns = [TurnRecord(chat.chat_id, at, (USER, ASSISTANT)[at], f"kept {number}") for at in range(2)]
            store.save_whole(chat, turns)
    await stage.open_chat()
    with closing(KeptTexts(stage.db_path)) as kept:
        session = Session(stage, kept, tmp_path / "data" / "prompts.jsonl", seed)
        for _ in range(num_steps):
            await session.step()
        left = await session.everything_left()
        lost = {word for word in session.words if word not in left}
        assert not lost, f"{session.log} lost {lost}"


@pytest.mark.parametrize("seed", range(20))
async def test_random_keys_lose_nothing(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.chdir(tmp_path)
    await _play(stage, tmp_path, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20, 520))
async def test_many_random_keys_lose_nothing(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.chdir(tmp_path)
    await _play(stage, tmp_path, seed)
