"""What settings and presets say about a chat: what a new one begins with, and how the next question is asked."""

from __future__ import annotations

from contextlib import suppress

from app.domains.domain import Domain
from app.settings.presets import SYSTEM_PROMPT, THINKING, PresetError, Presets, usable
from app.settings.settings import Settings
from app.storage.paths import AppPaths
from app.storage.records import ChatRecord
from engine.config import SamplingConfig
from engine.events import EngineReady


class ChatSettings:
    """The settings in force, as chats see them."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.presets = Presets(AppPaths.from_environment().presets_dir)

    def new_chat(self, domain: Domain, model: str) -> ChatRecord:
        """A chat in a domain, with the preset of the settings. A system prompt that was typed wins over the preset's;
        a preset that cannot be used is left out, and told by the app."""
        preset, prompt = None, domain.system_prompt
        with suppress(PresetError):
            preset = self.presets.load_chosen(self.settings.text("chat.preset"))
        if preset is not None and self.settings.typed(SYSTEM_PROMPT) is None:
            prompt = str(preset.values.get(SYSTEM_PROMPT, prompt))
        return ChatRecord(domain.name, prompt.strip(), model, preset=preset.kept if preset is not None else None)

    def sampling(self, chat: ChatRecord) -> SamplingConfig:
        """How the chat's next answer is drawn."""
        return self.settings.sampling(usable(chat.preset))

    def thinking(self, chat: ChatRecord, own: str | None, ready: EngineReady | None) -> str | None:
        """What the model is told about thinking: the chat's `own` choice, else the preset's, else that of the settings.

        None: nothing, as with `default`, which no template knows.
        """
        wanted = own or usable(chat.preset).get(THINKING) or self.settings.text(THINKING)
        return str(wanted) if ready is not None and wanted in ready.thinking_choices else None
