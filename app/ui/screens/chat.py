"""The chat: transcript and prompt at the left, live panels at the right, folding as the terminal gets smaller."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import ActiveBinding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import TextArea

from app.chat.prompt_history import PromptHistory
from app.domains.domain import Domain
from app.engine_link.bridge import EngineBridge
from app.settings.settings import Settings
from app.storage.paths import AppPaths
from app.storage.recorder import Recorder
from app.ui.key_map import bindings_of, key_for
from app.ui.screens.attaching import Attaching
from app.ui.screens.chat_flow import ChatFlow
from app.ui.screens.chat_status import ChatStatus
from app.ui.screens.chat_sync import ChatSync, words_about
from app.ui.screens.comparing import Comparing
from app.ui.screens.confirm import ask_to_stop_building
from app.ui.screens.copying import Copying
from app.ui.screens.full_context import FullContext
from app.ui.screens.panelled import PanelledScreen
from app.ui.screens.parts import with_actions_of
from app.ui.screens.preset_actions import PresetActions
from app.ui.screens.prompt_actions import PromptActions
from app.ui.screens.sheets import AboutChat
from app.ui.screens.turn_actions import TurnActions
from app.ui.screens.typed_text import is_typed_since
from app.ui.widgets.activity_line import ActivityLine
from app.ui.widgets.attachment_line import AttachmentLine
from app.ui.widgets.command_list import CommandList
from app.ui.widgets.decision_bar import DecisionBar
from app.ui.widgets.find_bar import FindBar
from app.ui.widgets.key_line import KeyLine, with_description
from app.ui.widgets.panel_column import PanelColumn
from app.ui.widgets.prompt import Prompt
from app.ui.widgets.status_line import StatusLine
from app.ui.widgets.title_bar import TitleBar
from app.ui.widgets.transcript import Transcript
from app.ui.widgets.turn import AnswerTurn
from engine.errors import MoeChatError
from engine.events import Event, Snapshot

_SAVE_EVERY_S = 1.0


@with_actions_of(
    turn_actions=TurnActions,
    copying=Copying,
    prompt_actions=PromptActions,
    preset_actions=PresetActions,
    comparing=Comparing,
)
class ChatScreen(PanelledScreen):
    """One chat and the panels. Its parts: `flow` (the conversation), `sync` (what others change in it), `status` (what
    is said of it), `turn_actions`, `prompt_actions`, `attaching`, `preset_actions`, `copying` and
    `comparing` (what the user does)."""

    AUTO_FOCUS = "#prompt"
    ACTION_SCOPE: ClassVar[str] = "chat turn"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("chat")]

    def __init__(self, bridge: EngineBridge, recorder: Recorder, settings: Settings, domain: Domain) -> None:
        super().__init__()
        self.bridge = bridge
        self._saved_at = time.monotonic()
        self.transcript = Transcript("transcript")
        self.flow = ChatFlow(bridge, recorder, settings, self.transcript, domain)
        self.sync = ChatSync(self.flow)
        self.status = ChatStatus(self)
        self.turn_actions = TurnActions(self)
        self.copying = Copying(self)
        self.prompt_actions = PromptActions(self)
        self.preset_actions = PresetActions(self)
        self.attaching = Attaching(self)
        self.comparing = Comparing(self)
        self._full_context = FullContext(self)

    def compose(self) -> ComposeResult:
        yield TitleBar(id="title-bar")
        yield StatusLine("status-line")
        with Horizontal(id="body"):
            with Vertical(id="chat"):
                yield self.transcript
                yield ActivityLine("activity")
                yield DecisionBar("decision")
                yield FindBar(self.transcript, "find-bar")
                yield CommandList("commands")
                yield AttachmentLine("attachments")
                yield Prompt("prompt", PromptHistory(AppPaths.from_environment().prompt_history))
            yield PanelColumn(id="panels")
        yield KeyLine()

    async def on_mount(self) -> None:
        self.status.show_title()
        await self.flow.catch_up()
        self.status.show_engine()
        if self.bridge.snapshot is not None:
            self.engine_snapshot(self.bridge.snapshot)

    # What the engine tells

    async def engine_events(self, happened: list[Event]) -> None:
        """Take in a batch of events; called on every beat of the app's clock, with or without events."""
        await self.flow.tell_domain()
        self.tell_panels(happened)
        self.attaching.note(happened)
        self.comparing.note(happened)
        if happened:
            await self.flow.handle(happened)
        self._ask_when_full()
        if time.monotonic() - self._saved_at >= _SAVE_EVERY_S:
            self._saved_at = time.monotonic()
            self.flow.save_partial()
            await self.look_elsewhere()
        self.status.show_engine()

    def engine_snapshot(self, snapshot: Snapshot) -> None:
        """Show the newest state."""
        self.status.show_context()
        self.status.warn_when_nearly_full(snapshot.context_used_tok, snapshot.context_tok)
        self.show_panels(snapshot)

    async def look_elsewhere(self) -> bool:
        """Show what another moe-chat wrote in this chat; True where that was something new to read."""
        changes = await self.sync.look()
        if changes.added or changes.removed:
            self.notify(words_about(changes), timeout=8)
        return bool(changes.added)

    def _ask_when_full(self) -> None:
        full, self.flow.full = self.flow.full, None
        if full is not None:
            self._full_context.ask(full)
            self.refresh_bindings()
        else:
            self._full_context.tend()

    # What the user does

    async def on_prompt_submitted(self, message: Prompt.Submitted) -> None:
        await self.prompt_actions.submit(message.text, message.shown)

    @on(TextArea.Changed, "#prompt")
    def offer_completions(self, event: TextArea.Changed) -> None:
        """While a command is typed."""
        self.prompt_actions.offer_completions(event.text_area.text)

    def on_prompt_command_list_key(self, message: Prompt.CommandListKey) -> None:
        self.prompt_actions.steer(message.key)

    def on_command_list_chosen(self, message: CommandList.Chosen) -> None:
        self.prompt_actions.take(message.completion, is_sent=False)
        self.focus_prompt()

    def action_find(self) -> None:
        """Open the find bar."""
        self.query_one(FindBar).open()

    def on_find_bar_closed(self) -> None:
        self.focus_prompt()

    async def show_found(self, position: int, found: Sequence[str]) -> None:
        """Bring on screen the turn at a position, the texts `found` in it marked; the find bar steps to others."""
        if not await self.query_one(FindBar).show_found(position, found):
            await self.turn_actions.focus(position)

    async def on_decision_bar_chosen(self, message: DecisionBar.Chosen) -> None:
        self.say(await self._full_context.follow(message.name))

    def action_decide(self) -> None:
        """The focus to what waits for a decision."""
        if not is_typed_since(self.app):
            self.query_one(DecisionBar).take_focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A decision is offered while one waits."""
        return action != "decide" or any(bar.display for bar in self.query(DecisionBar))

    @property
    def prompt(self) -> Prompt:
        """Where text is typed into."""
        return self.query_one(Prompt)

    def text_field(self) -> Prompt:
        """The prompt; panels that cover it make room."""
        if self.panels_cover:
            self.panel_mode = "compact"
        return self.prompt

    @property
    def active_bindings(self) -> dict[str, ActiveBinding]:
        """Those of a screen; away from the prompt the key that stops goes back to it."""
        active = super().active_bindings
        return active if isinstance(self.focused, Prompt) else with_description(active, "chat.stop", "Back")

    async def on_answer_turn_code_clicked(self, message: AnswerTurn.CodeClicked) -> None:
        await self.copying.on_click(message.exchange, message.number, message.click)

    def on_mode_badge_clicked(self) -> None:
        self.action_toggle_mode()

    async def begin_chat(self, domain: Domain) -> None:
        """Leave this chat and begin one in `domain`."""
        await self._close_sheets()
        await self.flow.begin_chat(domain)
        self.query_one(FindBar).end()
        self.status.show_title()
        self.focus_prompt()

    async def open_chat(self, chat_id: str) -> bool:
        """Leave this chat and go on with one that was kept; False, and said, when it cannot be."""
        before = self.flow.domain.name
        await self._close_sheets()
        try:
            is_there = await self.flow.open_chat(chat_id)
        except MoeChatError as error:
            self.notify(error.in_full, severity="error", markup=False)
            return False
        if not is_there:
            self.notify("That chat was deleted.", severity="warning")
            return False
        if self.flow.domain.name != before:
            self.bridge.profiles.choose(self.flow.domain.name)
        self.query_one(FindBar).end()
        self.status.show_title()
        self.focus_prompt()
        return True

    async def _close_sheets(self) -> None:
        """Close what was opened over the chat and is about it: another chat is going to be shown."""
        while isinstance(sheet := self.app.screen, AboutChat):
            sheet.leave()
            await self.app.pop_screen()

    async def action_stop(self) -> None:
        """One step back: to the prompt; there, out of the list of commands, then out of finding; only then stop."""
        prompt, offered = self.prompt, self.query_one(CommandList)
        if self.panels_cover:
            self.panel_mode = "compact"
        elif self.focused is not prompt:
            self.focus_prompt()
        elif offered.display:
            offered.show([])
            prompt.has_command_list = False
        elif self.query_one(FindBar).display:
            self.query_one(FindBar).action_close()
        else:
            await self._stop_something()
        self.status.show_engine()

    async def _stop_something(self) -> None:
        """Stop the answer; else take back what waits; else stop loading; else ask whether building is to be stopped."""
        if self.flow.stop():
            return
        if (text := await self.flow.withdraw()) is not None:
            self.prompt.give_back(text)
        elif not self.bridge.stop_loading():
            ask_to_stop_building(self.app, self.bridge.profiles)

    def action_toggle_mode(self) -> None:
        """Ask for the other mode."""
        self.action_ask_mode(self.bridge.other_mode)

    def action_ask_mode(self, mode: str) -> None:
        """Ask for a mode; it is shown once the engine confirms it."""
        if self.bridge.is_down:
            restart = key_for(self, "app.restart")
            self.notify(f"The engine is not running; {restart} starts it again.", severity="warning")
            return
        self.bridge.ask_mode(mode)
        self.status.show_engine()

    async def action_new_chat(self) -> None:
        """An empty chat in the same domain."""
        await self.begin_chat(self.flow.domain)

    def action_page(self, direction: int) -> None:
        """Scroll the transcript by a page; going up stops following the answer."""
        if direction < 0:
            self.transcript.scroll_page_up(animate=False)
        else:
            self.transcript.scroll_page_down(animate=False)

    def say(self, text: str) -> None:
        """Tell the user, if there is something to tell."""
        if text:
            self.notify(text, markup=False)
