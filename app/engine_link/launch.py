"""Starting the engine's process: the only place that names the real client."""

from __future__ import annotations

from app.engine_link.bridge import EngineLink
from app.storage.paths import AppPaths


def make_link(paths: AppPaths) -> EngineLink:
    """A fresh, unstarted client that logs to the engine's log."""
    from engine.client import EngineClient

    return EngineClient(paths.engine_log)
