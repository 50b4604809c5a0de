"""The demo model's folder in the user's cache, and whether it is built. Light: no torch."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

FOLDER_NAME = "demo-1"
"""The number goes up when the recipe changes."""
WEIGHTS_BYTES = 708_293_528


def cache_root() -> Path:
    """The folder that the demo is cached in: MOE_CHAT_CACHE, or the user's cache folder on this system."""
    chosen = os.environ.get("MOE_CHAT_CACHE")
    return Path(chosen).expanduser() if chosen else platformdirs.user_cache_path("moe-chat")


def is_built(folder: Path) -> bool:
    """Whether the whole checkpoint is there. Renaming it into place was the last step of building it."""
    weights = folder / "model.safetensors"
    return weights.is_file() and weights.stat().st_size == WEIGHTS_BYTES


def built_demo() -> Path | None:
    """The demo's checkpoint folder, if it is there."""
    folder = cache_root() / FOLDER_NAME
    return folder if is_built(folder) else None
