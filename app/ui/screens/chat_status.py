"""What the lines above and below a chat say: which chat and model, how full the context is, what the engine does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.chat.context import ContextSize
from app.formatting import figures
from app.ui.widgets.activity_line import ActivityLine
from app.ui.widgets.panel_column import PanelColumn
from app.ui.widgets.title_bar import TitleBar, is_nearly_full
from engine.config import STRATEGIES

if TYPE_CHECKING:
    from app.ui.screens.chat import ChatScreen


class ChatStatus:
    """Shows the state of a chat and its engine in the title bar and the activity line."""

    def __init__(self, chat: ChatScreen) -> None:
        self._chat = chat
        self._was_down = False
        self._warned_chat_id = ""

    def show_engine(self) -> None:
        """What the engine does now, and how it is set."""
        if not self._chat.app.is_running:
            return
        bridge, live = self._chat.bridge, self._chat.flow.live
        self._chat.query_one(TitleBar).show_mode(bridge.mode, bridge.wanted_mode)
        self.show_context()
        if bridge.ready is not None:
            self._chat.query_one(PanelColumn).set_model(bridge.ready)
            self.show_title()
        activity, num_waiting = self._chat.query_one(ActivityLine), len(self._chat.flow.conversation.waiting)
        if live is None and bridge.profiles.task is not None:
            activity.show_profile_task(bridge.profiles.task, num_waiting)
        elif live is None:
            activity.show_engine(bridge, num_waiting)
        elif self._chat.flow.is_reading_prompt and not live.is_stopping:
            activity.show_prefill(self._chat.flow.prefill, bridge.prefill_pace, num_waiting)
        else:
            tpot_ms = bridge.snapshot.timing.tpot_mean_ms if bridge.snapshot else None
            activity.show_answering(live.num_tok, tpot_ms, num_waiting, is_stopping=live.is_stopping)
        if bridge.is_down != self._was_down:  # the footer is composed anew: not on every beat
            self._was_down = bridge.is_down
            self._chat.refresh_bindings()

    def show_context(self) -> None:
        """Of the chat on screen: while it is answered as the engine has it, else as counted with its last answer."""
        snapshot = self._chat.bridge.snapshot
        if snapshot is None:
            return
        size = self._chat.flow.conversation.context_size
        if self._chat.flow.live is not None and snapshot.context_used_tok:
            size = ContextSize(snapshot.context_used_tok, is_estimate=False)
        self._chat.query_one(TitleBar).show_context(size.used_tok, snapshot.context_tok, is_estimate=size.is_estimate)

    def warn_when_nearly_full(self, used_tok: int, total_tok: int) -> None:
        """Once a chat, before anything has to be left out."""
        chat_id = self._chat.flow.conversation.chat_id
        if is_nearly_full(used_tok, total_tok) and self._chat.flow.live is not None and self._warned_chat_id != chat_id:
            self._warned_chat_id = chat_id
            share, left = figures.percent(used_tok, total_tok), total_tok - used_tok
            words = f"The context is {share} full: {left} tokens are left."
            self._chat.notify(f"{words} When they are used up you choose what happens.", severity="warning", timeout=8)

    def show_title(self) -> None:
        """Which chat this is."""
        ready = self._chat.bridge.ready
        model = ready.model_name if ready else self._chat.bridge.config.model
        strategy = self._chat.bridge.config.strategy
        if strategy != STRATEGIES[0]:
            model = f"{model} · {strategy}"
        flow = self._chat.flow
        preset = flow.conversation.chat.preset
        self._chat.query_one(TitleBar).show_chat(
            flow.domain.title, model, flow.version, preset.name if preset is not None else ""
        )
