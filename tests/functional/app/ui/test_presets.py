"""Presets in the app: chosen, kept with the chat, listed, deleted and restored."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.storage.store import ChatStore
from app.ui.screens.chat import ChatScreen
from app.ui.screens.presets import PresetsScreen
from engine.api import SetMode
from tests.functional.app.conftest import Stage
from tests.functional.app.ui.test_turns import talk

_TERSE = '[chat]\nsystem_prompt = "Be terse."\n[sampling]\ntemperature = 0.2\n[offload]\nmode = "approx"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "presets"
    folder.mkdir(parents=True)
    (folder / "terse.toml").write_text(_TERSE)
    return folder


async def test_a_preset_goes_with_its_chat(stage: Stage, folder: Path) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "First."))
    await stage.ask("/preset terse")
    await stage.see("· terse ·")
    await stage.until(lambda: SetMode("approx") in stage.engine.sent)
    await stage.until(lambda: stage.bridge.mode == "approx")
    chat_id = stage.chat.flow.conversation.chat_id
    kept = ChatStore(stage.db_path).chat(chat_id)  # without another question
    assert kept is not None
    assert kept.preset is not None
    assert kept.preset.values["sampling.temperature"] == 0.2
    (folder / "terse.toml").unlink()  # what becomes of the file does not matter to the chat
    await talk(stage, ("two", "Second."))
    submit = stage.engine.submitted()[-1]
    assert submit.sampling.temperature == 0.2
    assert submit.messages[0].content == "Be terse."
    await stage.pilot.press("ctrl+n")
    await talk(stage, ("three", "Third."))
    assert stage.engine.submitted()[-1].sampling.temperature is None
    await stage.chat.open_chat(chat_id)
    await stage.see("· terse ·")
    await talk(stage, ("four", "Fourth."))
    assert stage.engine.submitted()[-1].sampling.temperature == 0.2
    await stage.ask("/preset none")
    await talk(stage, ("five", "Fifth."))
    assert stage.engine.submitted()[-1].sampling.temperature is None
    assert stage.engine.submitted()[-1].messages[0].content != "Be terse."


async def test_the_list_chooses_deletes_and_restores(stage: Stage, folder: Path) -> None:
    (folder / "wrong.toml").write_text("[sampling]\nheat = 1\n")
    await stage.open_chat()
    await stage.ask("/preset")
    await stage.until(lambda: isinstance(stage.app.screen, PresetsScreen))
    await stage.see("wrong.toml, line 2")
    await stage.pilot.press("down", "ctrl+d")
    await stage.see("Deleted terse")
    assert not (folder / "terse.toml").exists()
    await stage.pilot.press("ctrl+u")
    await stage.see("Restored terse")
    assert (folder / "terse.toml").read_text() == _TERSE
    await stage.pilot.press("enter")
    await stage.until(lambda: isinstance(stage.app.screen, ChatScreen))
    await stage.see("· terse ·")
    await stage.ask("/system Be quick.")
    await stage.ask("/preset save quick")
    await stage.see("Saved preset quick")
    assert "Be quick." in (folder / "quick.toml").read_text()
    assert "0.2" in (folder / "quick.toml").read_text()


@pytest.mark.parametrize("saved_settings", ['[chat]\npreset = "gone"\n'])
async def test_a_preset_of_the_settings_that_is_gone_is_told(stage: Stage) -> None:
    await stage.see("There is no preset 'gone'")
    await stage.open_chat()
    await stage.ask_ready("one")
