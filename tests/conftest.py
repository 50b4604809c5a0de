"""What every test shares: no network, a quiet torch, and the demo's checkpoint."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

# Set before any library reads them: tests never ask a model hub, and tiny matrices are no work to share out.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["TOKENIZERS_PARALLELISM"] = "false"
_DATA = tempfile.TemporaryDirectory(prefix="moe-chat-tests-")
# The profiles of whoever runs the tests would move slots, and tests must leave none behind.
os.environ["XDG_DATA_HOME"] = _DATA.name


@pytest.fixture(scope="session")
def demo_folder() -> Path:
    """The demo's checkpoint folder in the user's cache, built first when it is missing, as the program would."""
    from engine.demo.model import ensure_demo

    return ensure_demo(lambda event: None)
