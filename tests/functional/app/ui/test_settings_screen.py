"""f2: the settings on screen, searched, changed, reset, and what follows at once."""

from __future__ import annotations

import tomllib

import pytest
from textual.widgets import Input, OptionList

from app.settings.settings import Given
from app.ui.screens.chat import ChatScreen
from app.ui.screens.setting_editor import SettingEditor
from app.ui.screens.settings import SettingsScreen
from engine.api import Load, SetMode
from engine.config import APPROX
from tests.functional.app.conftest import Stage


def saved(stage: Stage) -> dict[str, dict[str, object]]:
    return tomllib.loads(stage.settings.file.path.read_text())


async def open_settings(stage: Stage, search: str = "") -> None:
    await stage.pilot.press("f2")
    await stage.until(lambda: isinstance(stage.app.screen, SettingsScreen) and stage.app.screen.query("#settings-list"))
    await stage.see("Back end")
    if search:
        stage.app.screen.query_one("#settings-search", Input).value = search
        await stage.until(lambda: "Back end" not in stage.shown())


async def edit(stage: Stage, key: str) -> None:
    """Open the editor of the one setting with that key."""
    screen = stage.app.screen
    screen.query_one("#settings-search", Input).value = key
    options = screen.query_one("#settings-list", OptionList)
    await stage.until(lambda: options.highlighted_option is not None and options.highlighted_option.id == key)
    await stage.pilot.press("enter")
    await stage.until(lambda: isinstance(stage.app.screen, SettingEditor))


async def type_value(stage: Stage, key: str, text: str) -> None:
    await edit(stage, key)
    stage.app.screen.query_one(Input).value = text
    await stage.pilot.press("enter")


async def test_every_group_is_listed_with_values_and_meanings(stage: Stage) -> None:
    await open_settings(stage)
    await stage.see("MODEL AND MEMORY")
    await stage.see("Model                demo")
    await stage.see("a share of what is free")
    await stage.see("The demo, a checkpoint folder, a GGUF file, or a")
    await stage.see("0 changed, marked ●")
    await stage.pilot.press("down", "down")
    await stage.see("A number of bytes, such as 6GiB")
    await stage.see("Acts once the model is loaded again.")


async def test_a_change_acts_from_the_next_question_on_and_is_saved(stage: Stage) -> None:
    await stage.open_chat()
    await open_settings(stage)
    await type_value(stage, "sampling.temperature", "0.3")
    await stage.see("● Temperature          0.3")
    assert saved(stage) == {"sampling": {"temperature": 0.3}}
    await stage.pilot.press("escape", "escape")
    await stage.until(lambda: isinstance(stage.app.screen, ChatScreen))
    await stage.ask_ready("hello")
    assert stage.engine.submitted()[-1].sampling.temperature == 0.3


async def test_nonsense_is_refused_with_the_range(stage: Stage) -> None:
    await open_settings(stage)
    await type_value(stage, "sampling.top_p", "3")
    await stage.see("a number from 0 to 1")
    await stage.pilot.press("escape")
    await stage.until(lambda: isinstance(stage.app.screen, SettingsScreen))
    assert stage.settings.file.path.read_text() == ""


async def test_reset_goes_back_to_the_default(stage: Stage) -> None:
    await open_settings(stage)
    await type_value(stage, "sampling.seed", "7")
    await stage.see("● Seed                 7")
    await stage.pilot.press("ctrl+d")
    await stage.see("another one each time")
    await stage.until(lambda: saved(stage) == {"sampling": {}})


async def test_what_needs_loading_says_so_and_offers_it(stage: Stage) -> None:
    await stage.open_chat()
    await stage.ask_ready("hello")
    await open_settings(stage)
    assert "ctrl+l loads" not in stage.shown()
    await type_value(stage, "model.residency", "25%")
    await stage.see("The model runs with other settings. ctrl+l loads it with these.")
    await stage.pilot.press("ctrl+l")
    await stage.until(lambda: isinstance(stage.app.screen, ChatScreen))
    loads = [command for command in stage.engine.sent if isinstance(command, Load)]
    assert [load.config.residency for load in loads] == [0.5, 0.25]
    assert len(stage.engines) == 1
    await stage.see("hello")


async def test_a_choice_is_made_from_a_list_and_the_theme_follows_at_once(stage: Stage) -> None:
    await open_settings(stage)
    await edit(stage, "screen.theme")
    await stage.pilot.press("down", "down", "enter")
    await stage.until(lambda: stage.app.theme == "verdigris-light")
    assert saved(stage) == {"screen": {"theme": "light"}}


async def test_the_mode_follows_at_once(stage: Stage) -> None:
    await open_settings(stage)
    await edit(stage, "offload.mode")
    await stage.pilot.press("down", "enter")
    await stage.until(lambda: SetMode(APPROX) in stage.engine.sent)


async def test_the_mode_that_is_set_wins_over_one_still_pending(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage.engine, "answer", lambda command: None)
    await stage.open_chat()
    await stage.pilot.press("f5")
    await stage.until(lambda: stage.bridge.wanted_mode == APPROX)
    await open_settings(stage)
    await edit(stage, "offload.mode")
    await stage.pilot.press("down", "enter")
    await stage.until(lambda: saved(stage) == {"offload": {"mode": APPROX}})
    assert [command.mode for command in stage.engine.sent if isinstance(command, SetMode)] == [APPROX]


async def test_a_mode_set_while_the_engine_is_down_is_what_it_starts_in_and_what_is_shown(stage: Stage) -> None:
    await stage.open_chat()
    stage.engine.die()
    await stage.until(lambda: stage.bridge.is_down)
    await open_settings(stage)
    await edit(stage, "offload.mode")
    await stage.pilot.press("down", "enter")
    await stage.until(lambda: saved(stage) == {"offload": {"mode": APPROX}})
    stage.bridge.restart()
    assert [command.config.mode for command in stage.engine.sent if isinstance(command, Load)] == [APPROX]
    assert stage.bridge.mode == APPROX


async def test_a_system_prompt_of_several_lines(stage: Stage) -> None:
    await open_settings(stage)
    await edit(stage, "chat.system_prompt")
    await stage.pilot.press("B", "e", "enter", "b", "r", "i", "e", "f", "ctrl+s")
    await stage.see("Be ↵ brief")
    assert saved(stage) == {"chat": {"system_prompt": "Be\nbrief"}}
    await stage.pilot.press("escape", "escape")
    await stage.open_chat()
    await stage.ask_ready("hello")
    assert stage.engine.submitted()[-1].messages[0].content == "Be\nbrief"


async def test_a_key_is_changed_by_pressing_it(stage: Stage) -> None:
    await stage.open_chat()
    await open_settings(stage)
    await edit(stage, "keys.chat.mode")
    await stage.pilot.press("f12")
    await stage.see("f5 → f12")
    await stage.pilot.press("enter")
    await stage.see("● Exact or approximate f12")
    assert saved(stage) == {"keys": {"chat.mode": "f12"}}
    await stage.pilot.press("escape", "escape")
    await stage.until(lambda: isinstance(stage.app.screen, ChatScreen))
    await stage.pilot.press("f5")
    await stage.pilot.press("f12")
    await stage.until(lambda: SetMode(APPROX) in stage.engine.sent)
    assert stage.engine.sent.count(SetMode(APPROX)) == 1
    await stage.pilot.press("f1")
    await stage.see("f12")


async def test_a_key_that_is_taken_is_refused_with_the_reason(stage: Stage) -> None:
    await open_settings(stage)
    await edit(stage, "keys.chat.mode")
    await stage.pilot.press("f4", "enter")
    await stage.see("cannot be both chat.mode and")
    assert stage.settings.file.path.read_text() == ""


async def test_the_command_line_wins_and_the_screen_says_so(stage: Stage) -> None:
    stage.settings._given["sampling.temperature"] = Given("0.9", "--temperature")
    await open_settings(stage, "temperature")
    await stage.see("0.9   by --temperature")
    await stage.see("--temperature 0.9 wins in this run; the file has the model's own.")


async def test_search_narrows_and_escape_clears_it_first(stage: Stage) -> None:
    await open_settings(stage)
    await stage.pilot.press(*"emul")
    await stage.see("the real link")
    assert "Temperature" not in stage.shown()
    await stage.pilot.press("escape")
    await stage.see("MODEL AND MEMORY")
    await stage.pilot.press(*"zzz")
    await stage.see("No matches.")
    await stage.pilot.press("enter", "ctrl+d", "escape", "escape")
    await stage.until(lambda: not isinstance(stage.app.screen, SettingsScreen))


async def test_a_search_highlights_the_setting_of_that_name(stage: Stage) -> None:
    await open_settings(stage)
    await stage.pilot.press(*"memory")  # which is in the name of its group too, above "Model"
    await stage.see("model.memory in the file")


async def test_by_mouse(stage: Stage) -> None:
    await open_settings(stage, "top-k")
    await stage.see("Top-k")
    row = next(number for number, text in enumerate(stage.shown().splitlines()) if text.lstrip().startswith("Top-k"))
    await stage.pilot.click(offset=(8, row))
    await stage.until(lambda: isinstance(stage.app.screen, SettingEditor))


async def test_a_file_that_cannot_be_written_is_said_and_the_old_value_stays(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("app.settings.file.os.fsync", full)
    await open_settings(stage)
    await type_value(stage, "sampling.seed", "7")
    await stage.see("Seed was not saved: No space left")
    assert stage.settings.value("sampling.seed") is None


@pytest.mark.parametrize("size", [(80, 24), (40, 12)])
async def test_it_fits_a_small_terminal(stage: Stage) -> None:
    await open_settings(stage, "temperature")
    await stage.see("Temperature")
    await stage.see("0 always takes the likeliest")


@pytest.mark.parametrize("saved_settings", ["[keys]\n'chat.mode' = 'f4'\n[sampling]\ntop_p = 7\n"])
async def test_problems_of_the_file_are_told_at_the_start(stage: Stage) -> None:
    await stage.see("cannot be both")
    await stage.see("sampling.top_p = 7")


@pytest.mark.parametrize("pressed", ["ctrl+q", "f1", "ctrl+c", "tab"])
async def test_any_key_can_be_chosen_for_an_action_and_esc_keeps_the_old(stage: Stage, pressed: str) -> None:
    await open_settings(stage)
    await edit(stage, "keys.chat.regenerate")
    editor = stage.app.screen
    await stage.pilot.press(pressed)
    assert stage.app.screen is editor
    await stage.see(f"→ {pressed}")
    await stage.pilot.press("escape")
    await stage.until(lambda: isinstance(stage.app.screen, SettingsScreen))
    assert "keys" not in saved(stage)
