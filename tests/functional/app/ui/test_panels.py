"""The column of panels, each panel with the whole screen, layers in detail, and pictures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.formatting.terms import TERMS
from app.telemetry.event_log import Kind
from app.ui.screens.chat import ChatScreen
from app.ui.screens.help import HelpScreen
from app.ui.screens.layer_detail import LayerDetail
from app.ui.screens.panel_view import PanelView
from app.ui.widgets.events_panel import EventsPanel
from app.ui.widgets.memory_bar import MemoryBar
from app.ui.widgets.panel import Panel
from app.ui.widgets.panel_column import PANELS, PanelColumn
from app.ui.widgets.prompt import Prompt
from app.ui.widgets.residency_map import ResidencyMap
from app.ui.widgets.status_line import StatusLine
from engine.config import APPROX, EXACT
from engine.events import Counters, Snapshot, Timing
from tests.functional.app.conftest import Stage
from tests.functional.app.fake_engine import snapshot


def _decoding(sequence: int, **changes: object) -> Snapshot:
    shown = snapshot(sequence, phase="decode", mode=APPROX, tokens=4 * sequence, recent_tpot_ms=(48.0, 50.0))
    return replace(shown, **changes)  # type: ignore[arg-type]


async def _open(stage: Stage) -> PanelColumn:
    """The chat, with some states seen."""
    await stage.open_chat()
    column = stage.chat.query_one(PanelColumn)
    for sequence in range(2, 14):
        stage.engine.snapshot = _decoding(sequence)
        stage.chat.engine_snapshot(stage.engine.snapshot)
    await stage.pilot.pause()
    return column


async def test_the_split_of_decode_time_and_the_limit_are_shown_and_dashes_without(stage: Stage) -> None:
    await _open(stage)
    await stage.see("compute –")
    await stage.see("· – limit")
    timing = Timing(
        tpot_now_ms=80.0,
        tpot_mean_ms=50.0,
        compute_rate=0.6,
        link_wait_rate=0.3,
        overhead_rate=0.1,
        times_the_limit=1.38,
    )
    stage.engine.snapshot = _decoding(20, timing=timing)
    for text in ("compute 60 %", "load 30 %", "overhead 10 %", "mean 50 ms · ", "~1.4× limit"):
        await stage.see(text)
    stage.engine.snapshot = _decoding(21, timing=replace(timing, is_limit_estimate=False))
    await stage.see("· 1.4× limit")


@pytest.mark.parametrize("name", PANELS)
async def test_every_panel_has_the_whole_screen_when_asked_and_follows_the_engine(stage: Stage, name: str) -> None:
    await _open(stage)
    await stage.app.run_action(f"maximise_panel('{name}')", stage.chat)
    await stage.until(lambda: isinstance(stage.app.screen, PanelView))
    await stage.see(f"panel {list(PANELS).index(name) + 1} of 7")
    await stage.see(name.upper())
    await stage.see("≈ APPROX")
    stage.engine.snapshot = _decoding(60)
    stage.engine.snapshot = _decoding(61)
    await stage.pilot.resize_terminal(80, 24)
    await stage.see(name.upper())
    await stage.pilot.press("escape")
    await stage.until(lambda: isinstance(stage.app.screen, ChatScreen))


async def test_panels_are_walked_and_maximised_by_keys(stage: Stage) -> None:
    column = await _open(stage)
    await stage.pilot.press("f6")
    await stage.until(lambda: stage.chat.focused is column.query_one(ResidencyMap))
    await stage.pilot.press("tab", "down")
    await stage.until(lambda: stage.chat.focused is column.query_one("#aes"))
    await stage.pilot.press("enter")
    await stage.see("panel 3 of 7")
    await stage.see("available without waiting")
    await stage.pilot.press("right")
    await stage.see("panel 4 of 7")
    await stage.pilot.press("left", "left", "left", "left")
    await stage.see("panel 7 of 7")
    await stage.pilot.press("escape")
    await stage.until(lambda: isinstance(stage.app.screen, ChatScreen))
    await stage.pilot.press("f6")
    await stage.until(lambda: stage.chat.focused is stage.chat.query_one(Prompt))


async def test_a_double_click_maximises_a_panel(stage: Stage) -> None:
    await _open(stage)
    await stage.pilot.click("#tpot", times=2)
    await stage.see("panel 4 of 7")


async def test_the_mode_is_changed_from_a_maximised_panel(stage: Stage) -> None:
    await _open(stage)
    await stage.app.run_action("maximise_panel('aes')", stage.chat)
    await stage.until(lambda: isinstance(stage.app.screen, PanelView))
    await stage.pilot.press("f5")
    await stage.until(lambda: stage.bridge.mode == APPROX)


async def test_a_layer_is_opened_by_key_and_by_click(stage: Stage) -> None:
    column = await _open(stage)
    await stage.pilot.press("f6", "down", "down", "enter")
    await stage.until(lambda: isinstance(stage.app.screen, LayerDetail))
    for text in ("LAYER 2", "MoE layer 3 of 30", "slots 8", "since the model was loaded", "in how many of 12 samples"):
        await stage.see(text)
    await stage.pilot.press("right")
    await stage.see("LAYER 3")
    await stage.pilot.press("left", "left")
    await stage.see("LAYER 1")
    await stage.pilot.press("escape")
    await stage.until(lambda: isinstance(stage.app.screen, ChatScreen))
    layout = column.query_one(ResidencyMap).layout_plan
    assert layout is not None
    await stage.pilot.click(ResidencyMap, offset=(6, 10 // layout.layers_per_row))
    await stage.see("LAYER 10")


async def test_the_log_tells_what_happened_while_panels_were_off(stage: Stage) -> None:
    column = await _open(stage)
    await stage.pilot.press("f4", "f4")
    await stage.until(lambda: not column.display)
    await stage.pilot.press("f5")
    await stage.until(lambda: any(line.kind is Kind.MODE for line in column.history.log.lines))
    stage.engine.snapshot = _decoding(30)
    await stage.until(lambda: column.history.snapshot is stage.engine.snapshot)
    await stage.pilot.press("f4")
    await stage.until(lambda: column.display)
    await stage.see("⇄ APPROX")
    await stage.see("of 7200)")


async def test_short_terminals_drop_events_and_memory(stage: Stage) -> None:
    column = await _open(stage)
    assert column.query_one(EventsPanel).display
    await stage.pilot.resize_terminal(120, 28)
    await stage.until(lambda: not column.query_one(EventsPanel).display)
    assert not column.query_one(MemoryBar).display
    await stage.see("TPOT")


@pytest.mark.parametrize("size", [(160, 50)])
async def test_wide_terminals_put_figures_side_by_side(stage: Stage) -> None:
    column = await _open(stage)
    await stage.until(lambda: column.query_one("#prefetch").region.y == column.query_one("#tpot").region.y)
    assert column.query_one(ResidencyMap).size.width > 60


async def test_what_f4_chose_comes_back_with_the_width(stage: Stage) -> None:
    column = await _open(stage)
    await stage.pilot.press("f4")
    await stage.until(lambda: stage.chat.query_one(StatusLine).display and not column.display)
    await stage.pilot.resize_terminal(80, 24)
    await stage.pilot.press("f4")
    await stage.until(lambda: column.display)
    await stage.pilot.resize_terminal(120, 40)
    await stage.until(lambda: stage.chat.panel_mode == "compact")
    await stage.pilot.resize_terminal(80, 24)
    await stage.until(lambda: stage.chat.panel_mode == "full")


async def test_a_terminal_made_narrow_shows_the_figures_it_had(stage: Stage) -> None:
    await _open(stage)
    await stage.pilot.resize_terminal(80, 24)
    await stage.until(lambda: "TPOT" in str(stage.chat.query_one(StatusLine).render_line(0).text))


@pytest.mark.parametrize("size", [(80, 24)])
async def test_a_terminal_made_wide_shows_whole_panels(stage: Stage) -> None:
    column = await _open(stage)
    await stage.pilot.resize_terminal(120, 40)
    figures = [panel for panel in column.query(Panel).results(Panel) if panel.id != "events"]
    await stage.until(lambda: all(panel.size.height == panel.num_lines > 1 for panel in figures))


@pytest.mark.parametrize("size", [(50, 12)])
async def test_a_tiny_terminal_has_no_panels_and_escape_still_stops(stage: Stage) -> None:
    await stage.open_chat()
    await stage.pilot.press("f4")
    await stage.pilot.resize_terminal(59, 15)
    assert not stage.chat.query_one(PanelColumn).display
    assert not stage.chat.panels_cover


@pytest.mark.parametrize("shape", [(4, 8), (12, 16), (48, 128), (61, 256)])
async def test_any_model_is_drawn_at_any_size_in_mid_stream(stage: Stage, shape: tuple[int, int]) -> None:
    await stage.open_chat()
    for sequence, size in enumerate(((120, 40), (80, 24), (60, 16), (150, 30), (59, 15), (240, 70), (101, 31)), 2):
        await stage.pilot.resize_terminal(*size)
        stage.engine.snapshot = snapshot(
            sequence, phase="decode", tokens=sequence, num_layers=shape[0], num_experts=shape[1]
        )
        stage.chat.engine_snapshot(stage.engine.snapshot)
        await stage.pilot.pause()
    await stage.see(f"of {sum(map(len, snapshot(8, num_layers=shape[0], num_experts=shape[1]).residency))}")


async def test_panels_fit_any_width(stage: Stage) -> None:
    column = await _open(stage)
    for panel in column.query(Panel).results(Panel):
        for width in (1, 2, 9, 12, 20, 33, 58, 200):
            lines, full_lines = panel.lines(_decoding(20), width), panel.full_lines(_decoding(20), width, 24)
            assert width < 33 or max(line.cell_length for line in lines) <= width
            assert width < 58 or max(line.cell_length for line in full_lines) <= width


async def test_a_picture_is_saved_without_web_fonts(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platformdirs.user_pictures_path", lambda: tmp_path)
    await _open(stage)
    await stage.pilot.press("f9")
    await stage.see("Saved ")
    (picture,) = tmp_path.glob("moe-chat-*.svg")
    svg = picture.read_text(encoding="utf-8")
    assert "RESIDENCY" in svg
    assert "@font-face" not in svg
    assert "url(http" not in svg


async def test_a_picture_that_cannot_be_written_is_said(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.ui.screenshot.screenshot_folder", lambda: Path("/nowhere/at/all"))
    await stage.open_chat()
    await stage.pilot.press("f9")
    await stage.see("The screenshot could not be written")


async def test_substitutions_are_counted_over_one_answer_in_every_line(stage: Stage) -> None:
    await stage.open_chat()

    def look(sequence: int, mode: str, turn: int, *layers: int) -> None:
        counted = [Counters(routed=100, resident_hits=100 - number, substituted=number) for number in (turn, *layers)]
        told = replace(counted[0], routed=100 if turn else 0)
        shown = snapshot(sequence, phase="decode", mode=mode, tokens=1, num_layers=3)
        stage.engine.snapshot = replace(shown, turn_counters=told, layer_counters=tuple(counted[1:]))
        stage.chat.engine_snapshot(stage.engine.snapshot)

    look(2, APPROX, 0, 0, 0, 0)
    look(3, APPROX, 30, 10, 20, 0)
    await stage.see("30 of 100 substituted")
    look(4, EXACT, 0, 10, 20, 0)
    await stage.see("worst –")
    await stage.see("by layer –")
    look(5, EXACT, 3, 11, 20, 2)
    await stage.see("3 of 100 substituted while APPROX")


async def test_help_begins_with_the_words_of_the_panel_in_focus_or_maximised(stage: Stage) -> None:
    await _open(stage)
    await stage.pilot.press("f6", "f1")
    await stage.until(lambda: isinstance(stage.app.screen, HelpScreen))
    assert str(stage.app.screen.query(".sheet-title").first().render()) == "RESIDENCY"
    await stage.see("an expert that is on the device")
    await stage.pilot.press("escape")
    await stage.app.run_action("maximise_panel('aes')", stage.chat)
    await stage.until(lambda: isinstance(stage.app.screen, PanelView))
    await stage.pilot.press("f1")
    await stage.until(lambda: isinstance(stage.app.screen, HelpScreen))
    assert str(stage.app.screen.query(".sheet-title").first().render()) == "AES"


@pytest.mark.parametrize("name", PANELS)
async def test_a_maximised_panel_explains_its_words(stage: Stage, name: str) -> None:
    await _open(stage)
    await stage.pilot.resize_terminal(120, 80)
    await stage.app.run_action(f"maximise_panel('{name}')", stage.chat)
    for term in PANELS[name].EXPLAINED:
        await stage.see(f"{term}: {TERMS[term][:30]}")
