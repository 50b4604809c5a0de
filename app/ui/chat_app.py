"""The Textual app: wiring only."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, ClassVar

from rich.console import RenderableType
from textual import events
from textual.binding import BindingType
from textual.screen import Screen

from app.chat.answer_clock import AnswerClock
from app.domains.domain import Domain, all_domains, domain_called
from app.engine_link.bridge import EngineBridge
from app.formatting.sanitise import visible
from app.process.stop_signals import END_S, exit_code_of
from app.settings.setting import Value
from app.settings.settings import Settings
from app.storage.recorder import Recorder
from app.storage.records import ChatPlace
from app.storage.store import ChatStore
from app.ui.configured_app import ConfiguredApp
from app.ui.engine_watch import EngineWatch
from app.ui.key_map import bindings_of
from app.ui.opening import Opening
from app.ui.screens.domain_menu import DomainMenu
from app.ui.screens.typed_text import TypingApp
from engine.errors import MoeChatError
from engine.events import Notice

if TYPE_CHECKING:
    from app.ui.screens.chat import ChatScreen

_FIRST_FRAME_S = 0.05
"""After that the first frame is on screen."""

_BEAT_S = 0.125
"""Text is flushed at most this often."""


class ChatApp(TypingApp, ConfiguredApp):
    """moe-chat. The engine has been started, or is started when the app is mounted."""

    TITLE = "moe-chat"
    ENABLE_COMMAND_PALETTE = True
    CSS_PATH: ClassVar[str | PurePath | list[str | PurePath] | None] = [
        Path(__file__).with_name("styles") / f"{name}.tcss" for name in ("base", "chat", "panels", "menu", "chats")
    ]
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("app")]

    def __init__(
        self,
        bridge: EngineBridge,
        store: ChatStore,
        settings: Settings,
        notices: tuple[str, ...] = (),
        *,
        opening: Opening = Opening(),  # noqa: B008  it cannot be changed
        is_light_terminal: bool = False,
    ) -> None:
        """On a first run the engine is told what to load once the user has been asked."""
        super().__init__(bridge, settings, is_light_terminal=is_light_terminal)
        self._bridge = bridge
        self._store = store
        self.recorder = Recorder(store, self._tell)
        """What is not saved when the app has ended is still there."""
        self._notices = notices
        self._opening = opening
        self._chat: ChatScreen | None = None
        self._is_welcoming = False
        """The next domain that is chosen is the one the menu will propose."""
        self._watch = EngineWatch(self, bridge)
        self.answer_clock = AnswerClock()
        self.typed_before = ""
        """What the user typed before there was a prompt."""

    def on_mount(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end_by, number)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        if self.settings.is_first_run:
            self.action_welcome()
        else:
            self.call_later(self._open)
        self.set_timer(_FIRST_FRAME_S, self._import_the_rest)
        self.tell_settings_problems()
        for notice in self._notices:
            self.notify(notice, severity="warning", timeout=8, markup=False)
        self.set_interval(_BEAT_S, self._beat)
        if self.typed_before:
            self.call_after_refresh(self.post_message, events.Paste(self.typed_before))

    async def _open(self) -> None:
        """Begin in the last chat, with a question in a new one, or in the menu of domains."""
        try:
            chat_id = self._opening.last_chat_id(self._store)
        except MoeChatError as error:
            chat_id = None
            self._tell(error.in_full)
        if chat_id is not None:
            await self.open_place(ChatPlace(chat_id))
        elif self._opening.question:
            await self._chosen(domain_called(self.settings.text("chat.domain")))
        else:
            self.push_screen(self._menu(), self._chosen)

    async def _ask_opening(self) -> None:
        """Ask the question of the command line, once."""
        question, self._opening = self._opening.question, Opening()
        if question and self._chat is not None:
            await self._chat.prompt_actions.ask(question, question)

    def _import_the_rest(self) -> None:
        """What the first frame does not need (90 ms), while the user looks at it."""
        if self.is_running:  # not left at once
            import app.ui.screens.chat
            import app.ui.screens.help  # noqa: F401

            self._keep()
            self.run_worker(self.recorder.check())

    def _keep(self) -> None:
        """What is there now stays to the end: the garbage collector need not go through it each time (70 ms)."""
        if not self.is_headless:  # a program that runs many apps wants its memory back
            gc.freeze()

    def exit(self, result: None = None, return_code: int = 0, message: RenderableType | None = None) -> None:
        """Leave; the engine ends while the terminal is put back as it was."""
        self._bridge.begin_close()
        super().exit(result, return_code, message)

    def on_unmount(self) -> None:
        self._leave()

    def _end_by(self, number: int) -> None:
        """Leave because of a signal, and in any case soon: a terminal that takes nothing could hold up the end."""
        deadline = threading.Timer(END_S, os._exit, (exit_code_of(number),))
        deadline.daemon = True
        deadline.start()
        self.exit(return_code=exit_code_of(number))

    def _hang_up(self) -> None:
        """The terminal is gone: an orderly end would wait for it for ever."""
        self._leave()
        os._exit(exit_code_of(signal.SIGHUP))

    def _leave(self) -> None:
        """Keep what there is of the answer, and end the engine."""
        if self._chat is not None:
            self._chat.flow.save_partial()
            self._chat.flow.conversation.leave()
        self._bridge.close()
        self.recorder.finish()

    async def _beat(self) -> None:
        """Drain the engine's events, and show what there is to show."""
        if not self.is_running:
            return
        happened = self._bridge.poll()
        for event in happened:
            if isinstance(event, Notice):
                self._tell(f"{event.message} {event.hint}".strip())
        for answer in self.answer_clock.note(happened):
            self.call_user(answer)
        for text, is_error in self._bridge.profiles.take_news():
            self.notify(visible(text), severity="error" if is_error else "information", timeout=8, markup=False)
        await self._watch.tell(happened, 1 / self.settings.number("screen.panel_rate"))

    async def _chosen(self, domain: Domain | None) -> None:
        """A domain was chosen in the menu."""
        if domain is None:
            return
        if self._is_welcoming and domain in all_domains():
            self.save_settings({"chat.domain": domain.name})
        self._is_welcoming = False
        if self._chat is None:
            await self._show_chat(domain)
        else:
            await self._chat.begin_chat(self._as_set(domain))
        self._bridge.profiles.choose(domain.name)
        await self._ask_opening()

    async def _show_chat(self, domain: Domain) -> ChatScreen:
        """The screen of the chat, made when it is first needed."""
        from app.ui.screens.chat import ChatScreen

        self._chat = ChatScreen(self._bridge, self.recorder, self.settings, self._as_set(domain))
        self.settings_changed()
        await self.push_screen(self._chat)
        self._keep()
        return self._chat

    def _as_set(self, domain: Domain) -> Domain:
        """A domain with the user's own system prompt, where there is one."""
        return replace(domain, system_prompt=self.settings.text("chat.system_prompt") or domain.system_prompt)

    async def action_begin_domain(self, name: str) -> None:
        """A chat in the domain of that name, as if it had been chosen in the menu."""
        await self._chosen(domain_called(name))

    def action_choose_domain(self) -> None:
        """The menu of domains, over the chat."""
        if not isinstance(self.screen, DomainMenu):
            self.push_screen(self._menu(), self._chosen)

    async def leave_for_text(self, screen: Screen[object]) -> bool:
        """From the menu, text goes to the chat behind it, else to a new one in the highlighted domain."""
        if not isinstance(screen, DomainMenu) or self._chat is not None:
            return await super().leave_for_text(screen)
        domain = screen.highlighted
        screen.dismiss(None)
        await self._chosen(domain)
        return True

    def _menu(self) -> DomainMenu:
        return DomainMenu(self._bridge, self.settings.text("chat.domain"), can_go_back=self._chat is not None)

    def action_welcome(self) -> None:
        """Ask for the model and the memory, then for the domain."""
        from app.ui.screens.welcome import Welcome

        welcome = Welcome(self.settings.model_folders(), self._bridge.config.model, self.settings.config_of_others())
        self.push_screen(welcome, self._welcomed)

    async def _welcomed(self, chosen: dict[str, Value | None] | None) -> None:
        """The welcome is over; what was chosen holds, and is kept."""
        is_first, self.settings.is_first_run = self.settings.is_first_run, False
        self._is_welcoming = chosen is not None
        if chosen is not None:
            self.choose(chosen)
        elif is_first:
            self.choose({})
        if self._chat is None or self._is_welcoming:
            self.push_screen(self._menu(), self._chosen)

    def settings_changed(self) -> None:
        """The chat goes on with them from the next question on, and names the keys that hold."""
        if self._chat is not None:
            self._chat.transcript.refresh_turns()

    def action_chats(self) -> None:
        """Every chat that is kept, over the chat."""
        from app.ui.screens.chats import ChatsScreen

        if not isinstance(self.screen, ChatsScreen):
            open_chat_id = self._chat.flow.conversation.chat_id if self._chat is not None else None
            self.push_screen(ChatsScreen(self._store, self.recorder, open_chat_id), self.open_place)

    async def open_place(self, place: ChatPlace | None) -> None:
        """A chat was chosen in the list."""
        if place is None:
            return
        chat = self._chat or await self._screen_for(place.chat_id)
        if chat is not None and await chat.open_chat(place.chat_id) and place.position is not None:
            await chat.show_found(place.position, place.found)
        await self._ask_opening()

    async def _screen_for(self, chat_id: str) -> ChatScreen | None:
        """The screen of the chat, in the domain of one that was kept; None, and said, when it cannot be read."""
        try:
            kept = self._store.chat(chat_id)
        except MoeChatError as error:
            self.tell_error(error)
            return None
        if kept is None:
            self.notify("That chat was deleted.", severity="warning")
            return None
        self._bridge.profiles.choose(kept.domain)
        return await self._show_chat(domain_called(kept.domain))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The menu of domains is opened from the chat; what runs is not loaded again by a key."""
        if not super().check_action(action, parameters):
            return False
        if action == "choose_domain":
            return bool(self.screen_stack) and self.screen is self._chat
        if action == "chats":
            return not self.settings.is_first_run
        return self._bridge.is_down if action == "restart_engine" else True

    def action_restart_engine(self) -> None:
        """Have the model loaded again, by a new process if the old one is gone. Waiting questions are then asked."""
        self._bridge.restart()

    def _tell(self, text: str) -> None:
        """Something that the user must know."""
        self.notify(visible(text), severity="warning", timeout=12, markup=False)
