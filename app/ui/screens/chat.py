"""The chat: transcript and prompt at the left, live panels at the right, folding as the terminal gets smaller."""

from __future__ import annotations

import time
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import ActiveBinding, BindingType
from textual.containers import Horizontal, Vertical

from app.chat.context_size import ContextSize
from app.chat.prompt_history import PromptHistory
from app.domains.domain import Domain
from app.engine_link.bridge import EngineBridge
from app.formatting import figures
from app.storage.paths import AppPaths
from app.storage.recorder import Recorder
from app.ui.key_map import bindings_of, key_for
from app.ui.screens.chat_commands import ChatCommands
from app.ui.screens.chat_find import ChatFind
from app.ui.screens.chat_flow import ChatFlow
from app.ui.screens.chat_sync import ChatSync
from app.ui.screens.full_context import FullContext
from app.ui.screens.panelled import PanelledScreen
from app.ui.screens.stop_building import ask_to_stop_building
from app.ui.widgets.activity_line import ActivityLine
from app.ui.widgets.command_list import CommandList
from app.ui.widgets.decision_bar import DecisionBar
from app.ui.widgets.find_bar import FindBar
from app.ui.widgets.key_line import KeyLine, with_description
from app.ui.widgets.panel_column import PanelColumn
from app.ui.widgets.prompt import Prompt
from app.ui.widgets.status_line import StatusLine
from app.ui.widgets.title_bar import TitleBar, is_nearly_full
from app.ui.widgets.transcript import Transcript
from engine.config import SamplingConfig
from engine.errors import MoeChatError
from engine.events import Event, Snapshot

_SAVE_EVERY_S = 1.0


class ChatScreen(ChatCommands, ChatFind, PanelledScreen):
    """One chat and the panels."""

    AUTO_FOCUS = "#prompt"
    ACTION_SCOPE: ClassVar[str] = "chat turn"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("chat")]

    def __init__(self, bridge: EngineBridge, recorder: Recorder, sampling: SamplingConfig, domain: Domain) -> None:
        super().__init__()
        self._bridge = bridge
        self._was_down = False
        self._saved_at = time.monotonic()
        self._warned_chat_id = ""
        self.transcript = Transcript("transcript")
        self.flow = ChatFlow(bridge, recorder, sampling, self.transcript, domain)
        self.sync = ChatSync(self.flow)
        self._full_context = FullContext(self)

    def compose(self) -> ComposeResult:
        yield TitleBar(id="title-bar")
        yield StatusLine("status-line")
        with Horizontal(id="body"):
            with Vertical(id="chat"):
                yield self.transcript
                yield ActivityLine("activity")
                yield DecisionBar("decision")
                yield FindBar("find-bar")
                yield CommandList("commands")
                yield Prompt("prompt", PromptHistory(AppPaths.from_environment().prompt_history))
            yield PanelColumn(id="panels")
        yield KeyLine()

    async def on_mount(self) -> None:
        self._show_title()
        await self.flow.catch_up()
        self._show_engine()
        if self._bridge.snapshot is not None:
            self.engine_snapshot(self._bridge.snapshot)

    # What the engine tells

    async def engine_events(self, happened: list[Event]) -> None:
        """Take in a batch of events; called on every beat of the app's clock, with or without events."""
        await self.flow.tell_domain()
        self.tell_panels(happened)
        if happened:
            await self.flow.handle(happened)
        self._ask_when_full()
        if time.monotonic() - self._saved_at >= _SAVE_EVERY_S:
            self._saved_at = time.monotonic()
            self.flow.save_partial()
            await self._look_elsewhere()
        self._show_engine()

    def engine_snapshot(self, snapshot: Snapshot) -> None:
        """Show the newest state."""
        self._show_context()
        self._warn_when_nearly_full(snapshot.context_used_tok, snapshot.context_tok)
        self.show_panels(snapshot)

    async def _look_elsewhere(self) -> bool:
        """Show what another moe-chat wrote in this chat; True where that was something new to read."""
        changes = await self.sync.look()
        if not changes.added and not changes.removed:
            return False
        words = " and ".join(
            f"{what} {len(exchanges)} {'question' if len(exchanges) == 1 else 'questions'}"
            for what, exchanges in (("wrote", changes.added), ("deleted", changes.removed))
            if exchanges
        )
        self.notify(f"Another moe-chat {words} in this chat.", timeout=8)
        return bool(changes.added)

    async def ask(self, text: str) -> None:
        """Ask a question, unless the user has to see first what another moe-chat has just written in this chat."""
        if await self._look_elsewhere():
            self.query_one(Prompt).give_back(text)
            self.notify(
                "Your question is in the prompt: read what is new, then send it.", severity="warning", timeout=8
            )
        else:
            await self.flow.ask(text)

    def _show_engine(self) -> None:
        if not self.app.is_running:
            return
        bridge, live = self._bridge, self.flow.live
        self.query_one(TitleBar).show_mode(bridge.mode, bridge.wanted_mode)
        self._show_context()
        if bridge.ready is not None:
            self.query_one(PanelColumn).set_model(bridge.ready)
            self._show_title()
        activity, num_waiting = self.query_one(ActivityLine), len(self.flow.conversation.waiting)
        if live is None and bridge.profiles.task is not None:
            activity.show_profile_task(bridge.profiles.task, num_waiting)
        elif live is None:
            activity.show_engine(bridge, num_waiting)
        elif self.flow.is_reading_prompt and not live.is_stopping:
            activity.show_prefill(self.flow.prefill, bridge.prefill_pace, num_waiting)
        else:
            tpot_ms = bridge.snapshot.timing.tpot_mean_ms if bridge.snapshot else None
            activity.show_answering(live.num_tok, tpot_ms, num_waiting, is_stopping=live.is_stopping)
        if bridge.is_down != self._was_down:  # the footer is composed again: not on every beat
            self._was_down = bridge.is_down
            self.refresh_bindings()

    def _show_context(self) -> None:
        """Of the chat on screen: while it is answered as the engine has it, else as counted with its last answer."""
        snapshot = self._bridge.snapshot
        if snapshot is None:
            return
        size = self.flow.conversation.context_size
        if self.flow.live is not None and snapshot.context_used_tok:
            size = ContextSize(snapshot.context_used_tok, is_estimate=False)
        self.query_one(TitleBar).show_context(size.used_tok, snapshot.context_tok, is_estimate=size.is_estimate)

    def _warn_when_nearly_full(self, used_tok: int, total_tok: int) -> None:
        """Once a chat, before anything has to be left out."""
        chat_id = self.flow.conversation.chat_id
        if is_nearly_full(used_tok, total_tok) and self.flow.live is not None and self._warned_chat_id != chat_id:
            self._warned_chat_id = chat_id
            share, left = figures.percent(used_tok, total_tok), total_tok - used_tok
            words = f"The context is {share} full: {left} tokens are left."
            self.notify(f"{words} When they are used up you choose what happens.", severity="warning", timeout=8)

    def _ask_when_full(self) -> None:
        full, self.flow.full = self.flow.full, None
        if full is not None:
            self._full_context.ask(full)
            self.refresh_bindings()
        else:
            self._full_context.tend()

    def _show_title(self) -> None:
        ready = self._bridge.ready
        model = ready.model_name if ready else self._bridge.config.model
        self.query_one(TitleBar).show_chat(self.flow.domain.title, model, self.flow.version)

    # What the user does

    async def on_decision_bar_chosen(self, message: DecisionBar.Chosen) -> None:
        self._say(await self._full_context.follow(message.name))

    def action_decide(self) -> None:
        """The focus to what waits for a decision."""
        self.query_one(DecisionBar).take_focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A decision is offered while one waits."""
        return action != "decide" or any(bar.display for bar in self.query(DecisionBar))

    def text_field(self) -> Prompt:
        """The prompt; panels that cover it make room."""
        if self.panels_cover:
            self.panel_mode = "compact"
        return super().text_field()

    @property
    def active_bindings(self) -> dict[str, ActiveBinding]:
        """Those of a screen; away from the prompt the key that stops goes back to it."""
        active = super().active_bindings
        return active if isinstance(self.focused, Prompt) else with_description(active, "chat.stop", "Back")

    def on_mode_badge_clicked(self) -> None:
        self.action_toggle_mode()

    async def begin_chat(self, domain: Domain) -> None:
        """Leave this chat and begin one in `domain`."""
        await self.close_sheets()
        await self.flow.begin_chat(domain)
        self.end_finding()
        self._show_title()
        self.query_one(Prompt).focus()

    async def open_chat(self, chat_id: str) -> bool:
        """Leave this chat and go on with one that was kept; False, and said, when it cannot be."""
        before = self.flow.domain.name
        await self.close_sheets()
        try:
            is_there = await self.flow.open_chat(chat_id)
        except MoeChatError as error:
            self.notify(f"{error.message} {error.hint}".strip(), severity="error", markup=False)
            return False
        if not is_there:
            self.notify("That chat was deleted.", severity="warning")
            return False
        if self.flow.domain.name != before:
            self._bridge.profiles.choose(self.flow.domain.name)
        self.end_finding()
        self._show_title()
        self.query_one(Prompt).focus()
        return True

    def leave_panels(self) -> None:
        """The focus back to the prompt; a turn keeps it."""
        if self.focused_turn is None:
            super().leave_panels()

    async def action_stop(self) -> None:
        """One step back: to the prompt; there, out of the list of commands, then out of finding; only then stop."""
        prompt, offered = self.query_one(Prompt), self.query_one(CommandList)
        if self.panels_cover:
            self.panel_mode = "compact"
        elif self.focused is not prompt:
            prompt.focus()
        elif offered.display:
            offered.show([])
            prompt.has_command_list = False
        elif self.query_one(FindBar).display:
            self.query_one(FindBar).action_close()
        else:
            await self._stop_something()
        self._show_engine()

    async def _stop_something(self) -> None:
        """Stop the answer; else take back what waits; else stop loading; else ask whether building is to be stopped."""
        if self.flow.stop():
            return
        if (text := await self.flow.withdraw()) is not None:
            self.query_one(Prompt).give_back(text)
        elif not self._bridge.stop_loading():
            ask_to_stop_building(self.app, self._bridge.profiles)

    def action_copy_text(self) -> None:
        """Copy the selection; else stop the answer; else clear the prompt; else say how to quit."""
        selection = self.get_selected_text()
        if selection:
            self.call_later(self.copy, selection)
        elif self.flow.stop():
            self._show_engine()
        elif self.query_one(Prompt).clear_draft():
            undo = key_for(self, "prompt.undo")
            self.notify(f"Cleared; {undo} or up restores it.", timeout=3, markup=False)
        else:
            self.notify(f"{key_for(self, 'app.quit')} quits.", timeout=3)

    def action_toggle_mode(self) -> None:
        """Ask for the other mode."""
        self.action_ask_mode(self._bridge.other_mode)

    def action_ask_mode(self, mode: str) -> None:
        """Ask for a mode; it is shown once the engine confirms it."""
        if self._bridge.is_down:
            restart = key_for(self, "app.restart")
            self.notify(f"The engine is not running; {restart} starts it again.", severity="warning")
            return
        self._bridge.ask_mode(mode)
        self._show_engine()

    async def action_new_chat(self) -> None:
        """An empty chat in the same domain."""
        await self.begin_chat(self.flow.domain)

    def action_page(self, direction: int) -> None:
        """Scroll the transcript by a page; going up stops following the answer."""
        if direction < 0:
            self.transcript.scroll_page_up(animate=False)
        else:
            self.transcript.scroll_page_down(animate=False)
