"""Screenshots: SVG files that load nothing from the network."""

from __future__ import annotations

import re
import time
from pathlib import Path

import platformdirs
from textual.app import App

_WEB_FONT = re.compile(r"@font-face\s*\{[^}]*\}\s*")
_FONT = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"


def screenshot_of(app: App[None]) -> str:
    """The screen as SVG, in the reader's own monospaced font."""
    svg = app.export_screenshot(simplify=True)
    return _WEB_FONT.sub("", svg).replace("Fira Code, monospace", _FONT).replace("Fira Code", _FONT)


def screenshot_folder() -> Path:
    """The user's picture folder, else the current one."""
    pictures = platformdirs.user_pictures_path()
    return pictures if pictures.is_dir() else Path.cwd()


def save_screenshot(app: App[None], folder: Path) -> Path:
    """Write a screenshot, named after the time, into `folder`; returns where it is. Raises OSError."""
    stamp = time.strftime("%Y-%m-%d-%H%M%S")
    path = folder / f"{app.title}-{stamp}.svg"
    path.write_text(screenshot_of(app), encoding="utf-8", errors="replace")
    return path
