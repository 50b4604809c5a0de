"""The palette of actions."""

from __future__ import annotations

from textual.widgets import Input

from app.ui.themes import LIGHT
from app.ui.widgets.palette import Palette
from app.ui.widgets.prompt import Prompt
from tests.functional.app.conftest import Stage


async def test_enter_runs_what_was_typed_even_before_it_is_listed(stage: Stage) -> None:
    await stage.open_chat()
    await stage.pilot.press("ctrl+p")
    await stage.see("Branch")
    palette = stage.app.screen
    assert isinstance(palette, Palette)
    line = palette.query_one(Input)
    line.value = "light or dark"
    line.post_message(Input.Submitted(line, line.value))
    await stage.until(lambda: stage.app.theme == LIGHT)
    assert stage.app.screen is stage.chat


async def test_a_slash_command_without_a_key_is_in_the_palette(stage: Stage) -> None:
    await stage.open_chat()
    await stage.app.run_action("screen.command('stats')")
    await stage.see("Nothing has been counted yet.")
    await stage.pilot.press("escape")
    offered = {command.title: command for command in stage.app.get_system_commands(stage.app.screen)}
    await offered["Title"].callback()
    assert stage.chat.query_one(Prompt).text == "/title "
    await stage.pilot.press(*"Mine", "enter")
    await stage.see("Renamed to “Mine”.")
