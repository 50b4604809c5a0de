"""Settings of a test's own."""

from __future__ import annotations

from pathlib import Path

from app.settings.file import SettingsFile
from app.settings.settings import Settings


def settings_in(folder: Path, text: str | None = "") -> Settings:
    """Settings under `folder` that were saved with this text; None: never saved, so that it is the first run."""
    path = folder / "config" / "settings.toml"
    path.parent.mkdir(exist_ok=True)
    if text is not None:
        path.write_text(text, encoding="utf-8")
    return Settings(SettingsFile(path))
