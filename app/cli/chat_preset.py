"""What a chat without a screen begins with, its preset above all, and another preset that is chosen."""

from __future__ import annotations

from app.chat.conversation import Conversation
from app.domains.domain import Domain
from app.formatting.sanitise import whole
from app.settings.presets import MODE, SYSTEM_PROMPT, THINKING, Preset, Presets, usable
from app.settings.settings import Settings
from app.storage.paths import AppPaths
from app.storage.recorder import Recorder
from app.storage.records import ChatRecord


def known_presets() -> Presets:
    """Those in the data folder."""
    return Presets(AppPaths.from_environment().presets_dir)


def starting_preset(settings: Settings) -> Preset | None:
    """The preset that the command line or a setting names. Raises PresetError."""
    return known_presets().load_chosen(settings.text("chat.preset"))


def starting_mode(settings: Settings) -> str:
    """The mode to begin in: as typed, else as the preset has it, else as set. Raises PresetError."""
    preset = starting_preset(settings)
    chosen = preset.values.get(MODE) if preset is not None and settings.typed(MODE) is None else None
    return str(chosen or settings.engine_config().mode)


def new_conversation(domain: Domain, model: str, recorder: Recorder, settings: Settings) -> Conversation:
    """A chat in a domain with the preset and the system prompt of the settings; one that was typed wins over the
    preset's. Raises PresetError."""
    prompt = settings.text(SYSTEM_PROMPT) or domain.system_prompt
    conversation = Conversation(ChatRecord(domain.name, whole(prompt.strip()), model), recorder, settings.sampling())
    choose(conversation, starting_preset(settings), settings)
    if (typed := settings.typed(SYSTEM_PROMPT)) is not None:
        conversation.set_system_prompt(typed)
    return conversation


def wanted_thinking(conversation: Conversation, settings: Settings) -> str:
    """How the model is to think: as typed, else as the chat's preset has it, else as set."""
    preset = usable(conversation.chat.preset)
    return settings.typed(THINKING) or str(preset.get(THINKING) or settings.text(THINKING))


def choose(conversation: Conversation, preset: Preset | None, settings: Settings) -> None:
    """Have a chat go on with a preset, or with none, where its system prompt stays."""
    prompt = preset.values.get(SYSTEM_PROMPT) if preset is not None else None
    kept = preset.kept if preset is not None else None
    conversation.choose_preset(kept, None if prompt is None else str(prompt))
    conversation.sampling = settings.sampling(usable(kept))
