"""Presets in the app: the list of them, and what is typed behind `/preset`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from app.settings import preset_command, presets
from app.settings.preset_command import Outcome
from app.settings.presets import Preset, PresetError, Presets
from app.ui.screens.presets import PresetsScreen

if TYPE_CHECKING:
    from app.ui.screens.chat import ChatScreen


class PresetActions:
    """Chooses and keeps presets for the chat on screen."""

    def __init__(self, chat: ChatScreen) -> None:
        self._chat = chat

    @property
    def presets(self) -> Presets:
        """Those in the data folder."""
        return self._chat.flow.settings.presets

    def action_presets(self) -> None:
        """The list of presets."""
        chosen = self._chat.flow.conversation.chat.preset
        self._chat.app.push_screen(PresetsScreen(self.presets, chosen.name if chosen else ""), self._listed)

    def _listed(self, name: str | None) -> None:
        if name is not None:
            self.carry_out(name)

    def carry_out(self, asked: str) -> None:
        """Do what was typed behind `/preset`, and say what came of it."""
        try:
            outcome = preset_command.carry_out(self.presets, asked, self._current)
        except PresetError as error:
            self._chat.notify(error.in_full, severity="warning", timeout=10, markup=False)
        else:
            self._follow(outcome)
            self._chat.notify(outcome.said, timeout=6, markup=False)

    def _current(self, name: str) -> Preset:
        chat = self._chat.flow.conversation.chat
        return presets.of_chat(
            name, self._chat.flow.settings.settings.value, chat.system_prompt, presets.usable(chat.preset)
        )

    def _follow(self, outcome: Outcome) -> None:
        conversation, domain = self._chat.flow.conversation, self._chat.flow.domain
        if outcome.chosen is not None:
            prompt = outcome.chosen.values.get(presets.SYSTEM_PROMPT)
            conversation.choose_preset(outcome.chosen.kept, None if prompt is None else str(prompt))
            if (mode := outcome.chosen.values.get(presets.MODE)) is not None:
                self._chat.call_later(partial(self._chat.action_ask_mode, str(mode)))
        elif outcome.drops:
            had = presets.usable(conversation.chat.preset).get(presets.SYSTEM_PROMPT)
            is_presets = had is not None and had == conversation.chat.system_prompt
            conversation.choose_preset(None, domain.system_prompt if is_presets else None)
        self._chat.status.show_title()
