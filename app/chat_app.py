"""The Textual app: wiring only."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterable
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from rich.text import Text
from textual.actions import parse
from textual.app import App, SystemCommand
from textual.binding import BindingType
from textual.screen import Screen

from app.actions import ACTIONS, Action
from app.chat_store import ChatStore
from app.crash_log import log_crash
from app.domains import Domain
from app.engine_bridge import EngineBridge
from app.key_map import KeyMap, bindings_of
from app.recorder import Recorder
from app.sanitise import visible
from app.screens.domain_menu import DomainMenu
from app.themes import DARK, LIGHT, load_themes
from engine.config import SamplingConfig
from engine.events import Event, Snapshot

if TYPE_CHECKING:
    from app.screens.chat import ChatScreen

_BEAT_S = 0.125
"""Text is flushed at most this often."""

_SNAPSHOT_S, _IDLE_SNAPSHOT_S = 0.25, 1.0
"""How often the panels look, while something happens and while nothing does or nobody looks."""

_QUIET_PHASES = ("idle",)


@runtime_checkable
class EngineWatcher(Protocol):
    """A screen that shows what the engine does."""

    async def engine_events(self, happened: list[Event]) -> None:
        """What happened since the last beat; may be nothing."""

    def engine_snapshot(self, snapshot: Snapshot) -> None:
        """The engine's state, when it is worth showing."""


class ChatApp(App[None]):
    """moe-chat. The engine has been started, or is started when the app is mounted."""

    TITLE = "moe-chat"
    ENABLE_COMMAND_PALETTE = True
    CSS_PATH: ClassVar[str | PurePath | list[str | PurePath] | None] = [
        f"styles/{name}.tcss" for name in ("base", "chat", "panels", "menu")
    ]
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("app")]

    def __init__(
        self, bridge: EngineBridge, store: ChatStore, sampling: SamplingConfig, notices: tuple[str, ...] = ()
    ) -> None:
        super().__init__()
        self._bridge = bridge
        self._recorder = Recorder(store, self._tell)
        self._sampling = sampling
        self._notices = notices
        self._chat: ChatScreen | None = None
        self.key_map = KeyMap()
        self._snapshot_at = 0.0
        self._shown_sequence = -1
        for theme in load_themes():
            self.register_theme(theme)
        self.theme = DARK

    def on_mount(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.exit)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        self.push_screen(DomainMenu(self._bridge, can_go_back=False), self._chosen)
        self.call_after_refresh(self._import_the_rest)
        for notice in self._notices:
            self.notify(notice, severity="warning", timeout=8, markup=False)
        self.set_interval(_BEAT_S, self._beat)

    def _import_the_rest(self) -> None:
        """What the first frame does not need (90 ms), while the user looks at it."""
        if not self.is_running:  # left at once
            return
        import app.screens.chat
        import app.screens.help  # noqa: F401
        from app.markdown_style import rich_theme

        def style_markdown() -> None:
            self.console.push_theme(rich_theme(self.theme_variables))

        self.theme_changed_signal.subscribe(self, lambda _: style_markdown(), immediate=True)
        style_markdown()

    def on_unmount(self) -> None:
        self._leave()

    def _hang_up(self) -> None:
        """The terminal is gone: an orderly end would wait for it for ever."""
        self._leave()
        os._exit(128 + signal.SIGHUP)

    def _leave(self) -> None:
        """Keep what there is of the answer, and end the engine."""
        if self._chat is not None:
            self._chat.flow.save_partial()
        self._bridge.close()
        self._recorder.close()

    async def _beat(self) -> None:
        """Drain the engine's events, and look at its state as often as it is worth it."""
        if not self.is_running:
            return
        happened = self._bridge.poll()
        for text, is_error in self._bridge.profiles.take_news():
            self.notify(visible(text), severity="error" if is_error else "information", timeout=8, markup=False)
        snapshot, now = self._bridge.snapshot, time.monotonic()
        is_quiet = snapshot is None or snapshot.phase in _QUIET_PHASES or not self.app_focus
        is_due = now - self._snapshot_at >= (_IDLE_SNAPSHOT_S if is_quiet and not happened else _SNAPSHOT_S)
        for screen in self.screen_stack:
            if not isinstance(screen, EngineWatcher) or not screen.is_mounted:
                continue
            await screen.engine_events(happened)
            if not self.is_running:  # the app is being left
                return
            if snapshot is not None and is_due and snapshot.sequence != self._shown_sequence:
                screen.engine_snapshot(snapshot)
        if snapshot is not None and is_due:
            self._snapshot_at, self._shown_sequence = now, snapshot.sequence

    async def _chosen(self, domain: Domain | None) -> None:
        """A domain was chosen in the menu."""
        if domain is None:
            return
        if self._chat is None:
            from app.screens.chat import ChatScreen

            self._chat = ChatScreen(self._bridge, self._recorder, self._sampling, domain)
            self.push_screen(self._chat)
        else:
            await self._chat.begin_chat(domain)
        self._bridge.profiles.choose(domain.name)

    def action_choose_domain(self) -> None:
        """The menu of domains, over the chat."""
        if not isinstance(self.screen, DomainMenu):
            self.push_screen(DomainMenu(self._bridge, can_go_back=self._chat is not None), self._chosen)

    def action_help(self) -> None:
        """Keys and words."""
        from app.screens.help import HelpScreen

        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(self.key_map))

    def action_show_configuration(self) -> None:
        """What the engine runs with."""
        from app.screens.configuration import ConfigurationScreen

        if not isinstance(self.screen, ConfigurationScreen):
            self.push_screen(ConfigurationScreen(self._bridge))

    def action_toggle_theme(self) -> None:
        """Dark or light."""
        self.theme = LIGHT if self.theme == DARK else DARK

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The menu of domains is opened from the chat only."""
        return self.screen is self._chat if action == "choose_domain" and self.screen_stack else True

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette: every action that can be taken now, the screen's own first."""
        for action in sorted(ACTIONS, key=lambda action: action.scope == "app"):
            owner = self if action.scope == "app" else screen
            if action.call and action.in_palette and self._can_run(action, owner):
                keys = self.key_map.keys_text(action)
                about = f"{action.meaning} ({keys})" if keys else action.meaning
                yield SystemCommand(action.title, about, partial(self.run_action, action.call, owner))

    def _can_run(self, action: Action, owner: App[None] | Screen[object]) -> bool:
        """Whether `owner` has the action, and would take it now."""
        name, parameters = parse(action.call)[1:]
        is_there = owner is self or action.scope == getattr(owner, "ACTION_SCOPE", "")
        return is_there and bool(owner.check_action(name, parameters))

    def _tell(self, text: str) -> None:
        """Something about keeping chats that the user must know."""
        self.notify(text, severity="warning", timeout=12, markup=False)

    def _fatal_error(self) -> None:
        """An unexpected error: its traceback goes to the log, a sentence to the screen."""
        message = log_crash(self._exception) if self._exception is not None else "moe-chat met an unexpected error."
        self._exit_renderables.append(Text(message))
        self._close_messages_no_wait()
