"""Opening the chat: the engine's process first, so that it imports while the first frame is drawn."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from app.engine_link.bridge import EngineBridge, make_link
from app.formatting.sanitise import whole
from app.process.instance import InstanceLock
from app.settings.presets import MODE, PresetError, Presets
from app.settings.schema import START_LAST, THEME_SYSTEM
from app.settings.settings import Settings
from app.storage.paths import AppPaths, make_private
from app.storage.store import ChatStore
from app.storage.unsaved import finish
from app.ui.terminal_background import Background, ask_background
from engine.config import EngineConfig
from engine.errors import ConfigError

_LOCK_WAIT_S = 3.0
"""How long the end waits for another program that holds the chat database, once the screen has been put back."""


def chat(arguments: argparse.Namespace) -> int:
    """Run the app until the user leaves it; returns the exit code. Raises ConfigError without a terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError("The chat needs a terminal.", 'Without one: moe-chat ask "your question"')
    settings = Settings.of(arguments)
    config, _ = settings.engine_config(), settings.sampling()
    paths = AppPaths.from_environment()
    lock = InstanceLock(paths.instance_lock)
    second = lock.acquire()
    bridge = EngineBridge(lambda: make_link(paths), _with_mode_of_preset(config, settings, paths))
    bridge.start(loads=not settings.is_first_run)
    try:
        asks = settings.text("screen.theme") == THEME_SYSTEM
        background = ask_background() if asks else Background(is_light=False)
        from app.ui.chat_app import ChatApp
        from app.ui.opening import Opening
        from app.ui.terminal_input import typed_text

        notices = (second,) if second else ()
        store = ChatStore(paths.chats_db, checks_at_open=False)
        continues = arguments.goes_on or settings.text("chat.start") == START_LAST
        opening = Opening(continues, whole(" ".join(getattr(arguments, "question", []))).strip())
        app = ChatApp(bridge, store, settings, notices, opening=opening, is_light_terminal=background.is_light)
        app.typed_before = typed_text(background.read)
        app.run()
        if (unsaved := finish(app.recorder, _LOCK_WAIT_S)) is not None:
            raise unsaved
        return app.return_code or 0
    finally:
        bridge.close()
        lock.release()
        make_private(paths.data_dir)


def _with_mode_of_preset(config: EngineConfig, settings: Settings, paths: AppPaths) -> EngineConfig:
    """The configuration in the mode of the preset that new chats begin with, where it has one and none was typed.

    Raises PresetError where the preset was typed and cannot be used; one of the settings is told by the app.
    """
    try:
        preset = Presets(paths.presets_dir).load_chosen(settings.text("chat.preset"))
    except PresetError:
        if settings.typed("chat.preset") is not None:
            raise
        return config
    mode = preset.values.get(MODE) if preset is not None and settings.typed(MODE) is None else None
    return config if mode is None else replace(config, mode=str(mode))
