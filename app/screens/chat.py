"""The chat: transcript and prompt at the left, live panels at the right, folding as the terminal gets smaller."""

from __future__ import annotations

import time
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.reactive import reactive
from textual.screen import Screen
from textual.widgets import Footer

from app.domains import Domain
from app.engine_bridge import EngineBridge
from app.key_map import bindings_of
from app.recorder import Recorder
from app.screens.chat_flow import ChatFlow
from app.widgets.activity_line import ActivityLine
from app.widgets.panel_column import PanelColumn
from app.widgets.prompt import Prompt
from app.widgets.status_line import StatusLine
from app.widgets.title_bar import TitleBar
from app.widgets.transcript import Transcript
from engine.config import SamplingConfig
from engine.events import Event, Snapshot

WIDE = 100
"""Columns from which the panels have room beside the chat."""

PANEL_MODES = ("full", "compact", "off")
_SAVE_EVERY_S = 1.0


class ChatScreen(Screen[None]):
    """One chat and the panels."""

    AUTO_FOCUS = "#prompt"
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (WIDE, "-wide"), (150, "-huge")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (16, "-short"), (30, "-medium"), (37, "-tall")]  # noqa: RUF012
    ACTION_SCOPE: ClassVar[str] = "chat"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("chat")]

    panel_mode: reactive[str] = reactive("full", init=False)

    def __init__(self, bridge: EngineBridge, recorder: Recorder, sampling: SamplingConfig, domain: Domain) -> None:
        super().__init__()
        self._bridge = bridge
        self._domain = domain
        self._is_wide: bool | None = None
        self._was_down = False
        self._saved_at = time.monotonic()
        self._transcript = Transcript("transcript")
        self.flow = ChatFlow(bridge, recorder, sampling, self._transcript, domain)

    def compose(self) -> ComposeResult:
        yield TitleBar(id="title-bar")
        yield StatusLine("status-line")
        with Horizontal(id="body"):
            with Vertical(id="chat"):
                yield self._transcript
                yield ActivityLine("activity")
                yield Prompt("prompt")
            yield PanelColumn(id="panels")
        yield Footer(compact=True, show_command_palette=False)

    async def on_mount(self) -> None:
        self._fold(self.app.size.width)
        self.add_class(f"panels-{self.panel_mode}")
        self._show_title()
        await self.flow.catch_up()
        self._show_engine()
        if self._bridge.snapshot is not None:
            self.engine_snapshot(self._bridge.snapshot)

    def on_resize(self, event: events.Resize) -> None:
        self._fold(event.size.width)

    def _fold(self, width: int) -> None:
        """Panels beside the chat where they have room, else as one line; the user's choice holds until that changes."""
        is_wide = width >= WIDE
        if is_wide != self._is_wide:
            self._is_wide = is_wide
            self.panel_mode = "full" if is_wide else "compact"

    def watch_panel_mode(self, old: str, new: str) -> None:
        self.remove_class(f"panels-{old}")
        self.add_class(f"panels-{new}")
        if self.query("#prompt") and not self._covers_chat:
            self.query_one(Prompt).focus()

    @property
    def _covers_chat(self) -> bool:
        """The panels take the whole screen."""
        return self.panel_mode == "full" and not self._is_wide

    # What the engine tells

    async def engine_events(self, happened: list[Event]) -> None:
        """Take in a batch of events; called on every beat of the app's clock, with or without events."""
        await self.flow.tell_domain()
        if happened:
            await self.flow.handle(happened)
        if time.monotonic() - self._saved_at >= _SAVE_EVERY_S:
            self._saved_at = time.monotonic()
            self.flow.save_partial()
        self._show_engine()

    def engine_snapshot(self, snapshot: Snapshot) -> None:
        """Show the newest state."""
        self.query_one(TitleBar).show_context(snapshot.context_used_tok, snapshot.context_tok)
        if self.panel_mode == "full":
            self.query_one(PanelColumn).show(snapshot)
        elif self.panel_mode == "compact":
            self.query_one(StatusLine).show(snapshot)

    def _show_engine(self) -> None:
        if not self.app.is_running:
            return
        bridge, live = self._bridge, self.flow.live
        self.query_one(TitleBar).show_mode(bridge.mode, bridge.wanted_mode)
        if bridge.ready is not None:
            self.query_one(PanelColumn).set_model(bridge.ready)
            self._show_title()
        activity, num_waiting = self.query_one(ActivityLine), len(self.flow.conversation.waiting)
        if live is None and bridge.profiles.task is not None:
            activity.show_profile_task(bridge.profiles.task, num_waiting)
        elif live is None:
            activity.show_engine(bridge, num_waiting)
        elif self.flow.is_reading_prompt and not live.is_stopping:
            activity.show_prefill(self.flow.prefill, num_waiting)
        else:
            tpot_ms = bridge.snapshot.timing.tpot_mean_ms if bridge.snapshot else None
            activity.show_answering(live.num_tok, tpot_ms, num_waiting, is_stopping=live.is_stopping)
        if bridge.is_down != self._was_down:  # the footer is composed anew: not on every beat
            self._was_down = bridge.is_down
            self.refresh_bindings()

    def _show_title(self) -> None:
        ready = self._bridge.ready
        self.query_one(TitleBar).show_chat(self._domain.title, ready.model_name if ready else self._bridge.config.model)

    # What the user does

    async def on_prompt_submitted(self, message: Prompt.Submitted) -> None:
        await self.flow.ask(message.text)
        self._show_engine()

    def on_mode_badge_clicked(self) -> None:
        self.action_toggle_mode()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The restart key exists only while there is something to restart."""
        return self._bridge.is_down if action == "restart_engine" else True

    async def begin_chat(self, domain: Domain) -> None:
        """Leave this chat and begin one in `domain`."""
        self._domain = domain
        await self.flow.begin_chat(domain)
        self._show_title()
        self.query_one(Prompt).focus()

    async def action_stop(self) -> None:
        """Stop the answer; else take back a waiting question; else stop building a profile; else back to the prompt."""
        if self._covers_chat:
            self.panel_mode = "compact"
        elif self.flow.stop():
            self._show_engine()
        elif (text := await self.flow.withdraw()) is not None:
            self.query_one(Prompt).set_text(text)
        elif self._bridge.profiles.cancel():
            self._show_engine()
        else:
            self.query_one(Prompt).focus()

    def action_copy_text(self) -> None:
        """Copy the selection; else stop the answer; else say how to quit."""
        selection = self.get_selected_text()
        if selection:
            self.app.copy_to_clipboard(selection)
            self.notify("Copied.", timeout=2)
        elif not self.flow.stop():
            self.notify("ctrl+q quits.", timeout=3)

    def action_toggle_mode(self) -> None:
        """Ask for the other mode; it is shown once the engine confirms it."""
        if self._bridge.is_down:
            self.notify("The engine is not running; f8 starts it again.", severity="warning")
            return
        self._bridge.toggle_mode()
        self._show_engine()

    def action_cycle_panels(self) -> None:
        """Panels full, as one line, or off."""
        self.panel_mode = PANEL_MODES[(PANEL_MODES.index(self.panel_mode) + 1) % len(PANEL_MODES)]
        if self._bridge.snapshot is not None:
            self.engine_snapshot(self._bridge.snapshot)

    async def action_new_chat(self) -> None:
        """An empty chat in the same domain."""
        await self.begin_chat(self._domain)

    def action_restart_engine(self) -> None:
        """Start the engine anew; waiting questions are sent when it is ready."""
        self._bridge.restart()
        self._show_engine()

    def action_page(self, direction: int) -> None:
        """Scroll the transcript by a page; going up stops following the answer."""
        if direction < 0:
            self._transcript.scroll_page_up(animate=False)
        else:
            self._transcript.scroll_page_down(animate=False)

    def action_to_bottom(self) -> None:
        """Follow the answer again."""
        self._transcript.anchor()
        self.query_one(Prompt).focus()
