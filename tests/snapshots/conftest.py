"""The staged app of the functional tests, in a place and at a time that are the same everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Input, TextArea

from app.telemetry.event_log import LogLine
from engine.checkpoint.catalogue import ModelEntry
from engine.config import DEMO_MODEL
from tests.functional.app.conftest import engine_type, saved_settings, size, stage

__all__ = ["engine_type", "saved_settings", "size", "stage"]

_MODELS = (
    ModelEntry(DEMO_MODEL, DEMO_MODEL, is_supported=True, reason=""),
    ModelEntry("owner/Dense-8B", "owner/Dense-8B", False, "not a Mixture-of-Experts model", "llama", 32),
    ModelEntry("owner/MoE-30B", "owner/MoE-30B", True, "", "qwen3_moe", 48, 128, 8, 61 * 10**9),
)


@pytest.fixture
def tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same name for every run, as it is shown in the settings."""
    monkeypatch.chdir(tmp_path)
    return Path()


@pytest.fixture(autouse=True)
def _the_same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogLine, "clock", "12:34:56")
    monkeypatch.setattr("app.ui.widgets.model_list.list_models", lambda *_: _MODELS)
    monkeypatch.setattr(Input, "_toggle_cursor", lambda _: None)
    monkeypatch.setattr(TextArea, "_toggle_cursor_blink_visible", lambda _: None)
    for name in ("NO_COLOR", "COLORFGBG"):
        monkeypatch.delenv(name, raising=False)
