"""The app on a fake engine, driven by a pilot. Tests wait for conditions, never for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import OptionList

from app.cli import engine_run
from app.engine_link.bridge import EngineBridge
from app.storage.store import ChatStore
from app.ui.chat_app import ChatApp
from app.ui.opening import Opening
from app.ui.screens.chat import ChatScreen
from app.ui.screens.confirm import Confirm
from app.ui.widgets.decision_bar import DecisionBar
from app.ui.widgets.prompt import Prompt
from tests.functional.app.fake_engine import FakeEngine, ObedientEngine
from tests.functional.app.own_settings import settings_in
from tests.functional.app.played_engine import Play, PlayedEngine
from tests.patience import PATIENCE_S


class Stage:
    """An app under test, its engines, and its store."""

    def __init__(
        self, folder: Path, engine_type: type[FakeEngine], settings: str | None = "", opening: Opening | None = None
    ) -> None:
        """`settings` is the text of the settings file; None: there is none, it is the first run."""
        self.engines: list[FakeEngine] = []
        self.db_path = folder / "chats.db"
        self._engine_type = engine_type
        self.settings = settings_in(folder, settings)
        self.bridge = EngineBridge(self._make_engine, self.settings.engine_config())
        self.bridge.start(loads=not self.settings.is_first_run)
        self.app = ChatApp(self.bridge, ChatStore(self.db_path), self.settings, opening=opening or Opening())
        self.pilot: Pilot[Any]

    @property
    def engine(self) -> FakeEngine:
        return self.engines[-1]

    @property
    def chat(self) -> ChatScreen:
        screen = self.app.screen
        assert isinstance(screen, ChatScreen)
        return screen

    def _make_engine(self) -> FakeEngine:
        self.engines.append(self._engine_type())
        return self.engines[-1]

    async def until(self, condition: Callable[[], object], what: str = "") -> None:
        """Let the app run until `condition` holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, what or "the condition never held"
            await asyncio.sleep(0.01)

    async def open_chat(self) -> None:
        """Choose a domain that has a system prompt."""
        await self.pilot.press("alt+2")
        await self.until(lambda: isinstance(self.app.screen, ChatScreen) and self.app.screen.query("#prompt"))

    async def loaded(self) -> None:
        """The engine has loaded, and what there is is known."""
        await self.until(lambda: self.bridge.is_ready and self.bridge.profiles.is_known, "the engine never loaded")

    async def asked_about(self, name: str) -> None:
        """A dialog that names this has to be confirmed."""
        await self.until(lambda: isinstance(self.app.screen, Confirm), "nothing was to be confirmed")
        await self.see(name)

    async def has_to_decide(self, choice: str) -> None:
        """A decision waits, and this is one of its choices."""
        await self.until(lambda: choice in self._choices(), f"{choice} is not offered")

    def _choices(self) -> list[str | None]:
        """The ids of what may be decided now."""
        bars = [bar for bar in self.app.screen.query(DecisionBar) if bar.display]
        return [option.id for bar in bars for option in bar.query_one(OptionList).options if not option.disabled]

    async def waiting(self, number: int) -> None:
        """So many questions wait for the engine, and the screen says that they do."""
        await self.until(lambda: len(self.chat.flow.conversation.waiting) == number)
        await self.see(f"{number} message")

    async def ask(self, text: str) -> None:
        """Put a question into the prompt and send it."""
        self.chat.query_one(Prompt).set_text(text)
        await self.pilot.press("enter")

    async def ask_ready(self, text: str) -> int:
        """Ask a loaded engine; returns the request once the engine has it."""
        before = len(self.engine.submitted())
        await self.ask(text)
        await self.until(lambda: len(self.engine.submitted()) > before, "the engine was not asked")
        return self.engine.submitted()[-1].request_id

    def shown(self) -> str:
        """Everything on screen as text."""
        screen = self.app.screen
        width = screen.size.width
        strips = screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in strip)[:width] for strip in strips)

    async def see(self, text: str) -> None:
        """Wait until a text is on the screen."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.shown():
            assert time.monotonic() < deadline, f"{text!r} never appeared in\n{self.shown()}"
            await asyncio.sleep(0.02)


@pytest.fixture
def size() -> tuple[int, int]:
    """Columns and rows of the terminal."""
    return 120, 40


@pytest.fixture
def engine_type() -> type[FakeEngine]:
    return ObedientEngine


@pytest.fixture
def saved_settings() -> str | None:
    """The text of the settings file; None: it is the first run."""
    return ""


@pytest.fixture
async def stage(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    size: tuple[int, int],
    engine_type: type[FakeEngine],
    saved_settings: str | None,
) -> AsyncIterator[Stage]:
    """The app in its menu of domains."""
    monkeypatch.setenv("MOE_CHAT_HOME", str(tmp_path))
    staged = Stage(tmp_path, engine_type, saved_settings)
    async with staged.app.run_test(size=size, notifications=True) as pilot:
        staged.pilot = pilot
        yield staged


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Play], FakeEngine]:
    """Put an engine behind the commands that plays what it is given."""

    def install(script: Play) -> FakeEngine:
        engine = PlayedEngine(script)
        monkeypatch.setattr(engine_run, "make_link", lambda paths: engine)
        return engine

    monkeypatch.setenv("MOE_CHAT_HOME", str(tmp_path))
    return install
