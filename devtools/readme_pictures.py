"""The README's pictures, of the real app answering on the demo: `python -m devtools.readme_pictures FOLDER`.

One question is asked, and the screen is taken while it is answered. Nothing of the user's is read or changed.
"""

from __future__ import annotations

import asyncio
import os
import sys
from argparse import Namespace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from textual.pilot import Pilot

from app.engine_link.bridge import EngineBridge, make_link
from app.settings.settings import Settings
from app.storage.paths import AppPaths
from app.storage.store import ChatStore
from app.ui.chat_app import ChatApp
from app.ui.screens.chat import ChatScreen
from app.ui.screenshot import screenshot_of
from app.ui.themes import DARK, LIGHT

_QUESTION = "How do I make a good cup of tea? Give me a short numbered list, then explain every step."


class _Shot(NamedTuple):
    """One picture."""

    name: str
    theme: str
    columns: int
    rows: int
    at_tok: int
    """Taken once the answer has so many tokens, or has ended."""
    switches_mode: bool = False


_SHOTS = (
    _Shot("dark-120x40", DARK, 120, 40, 70),
    _Shot("light-120x40", LIGHT, 120, 40, 110, switches_mode=True),
    _Shot("narrow-80x24", DARK, 80, 24, 150),
)


async def _open_chat(app: ChatApp, bridge: EngineBridge, pilot: Pilot[None]) -> ChatScreen:
    """Load the model, choose the first domain, and ask."""
    while not bridge.is_ready:
        if bridge.failure is not None:
            raise SystemExit(f"{bridge.failure.title}: {bridge.failure.message}")
        await asyncio.sleep(0.1)
    await pilot.press("alt+1")
    while not (isinstance(app.screen, ChatScreen) and app.screen.query("#prompt")):
        await asyncio.sleep(0.05)
    await app.screen.flow.ask(_QUESTION)
    return app.screen


async def _take(shot: _Shot, app: ChatApp, chat: ChatScreen, pilot: Pilot[None], folder: Path) -> None:
    app.theme = shot.theme
    await pilot.resize_terminal(shot.columns, shot.rows)
    if shot.switches_mode:
        await app.run_action("toggle_mode", chat)
    while chat.flow.is_reading_prompt or (chat.flow.live is not None and chat.flow.live.num_tok < shot.at_tok):
        await asyncio.sleep(0.05)
    await pilot.pause(0.5)
    (folder / f"{shot.name}.svg").write_text(screenshot_of(app), encoding="utf-8")


async def _take_all(folder: Path) -> None:
    paths, settings = AppPaths.from_environment(), Settings.of(Namespace())
    bridge = EngineBridge(lambda: make_link(paths), settings.engine_config())
    bridge.start()
    app = ChatApp(bridge, ChatStore(paths.chats_db), settings)
    try:
        async with app.run_test(size=(_SHOTS[0].columns, _SHOTS[0].rows)) as pilot:
            chat = await _open_chat(app, bridge, pilot)
            app.clear_notifications()
            for shot in _SHOTS:
                await _take(shot, app, chat, pilot, folder)
    finally:
        bridge.close()


def main() -> None:
    """Take every picture into the folder that is given."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m devtools.readme_pictures FOLDER")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as home:
        os.environ["MOE_CHAT_HOME"] = home
        settings = Path(home, "config", "settings.toml")
        settings.parent.mkdir(parents=True)
        settings.touch()
        asyncio.run(_take_all(folder))


if __name__ == "__main__":
    main()
