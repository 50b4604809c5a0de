"""What every test shares: no network, a quiet torch, and the demo's checkpoint."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import pytest

# Set before any library reads them: tests never ask a model hub, and tiny matrices are no work to share out.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# What runs in a shell's background or under nohup ignores these, and so would the programs that tests start and stop.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
_DATA = tempfile.TemporaryDirectory(prefix="moe-chat-tests-")
# The profiles of whoever runs the tests would move slots, and tests must leave none behind.
os.environ["XDG_DATA_HOME"] = _DATA.name
_USERS_CACHE = os.environ.get("MOE_CHAT_CACHE")
_CACHE = Path(_DATA.name) / "cache"
# What was measured of the models that the user runs is neither read nor pushed out.
os.environ["MOE_CHAT_CACHE"] = str(_CACHE)


@pytest.fixture(scope="session")
def demo_folder() -> Path:
    """The demo's checkpoint folder in the user's cache, built first when it is missing, as the program would; linked to
    from the cache that tests use."""
    from engine.demo.model import ensure_demo

    with pytest.MonkeyPatch.context() as patch:
        if _USERS_CACHE is None:
            patch.delenv("MOE_CHAT_CACHE")
        else:
            patch.setenv("MOE_CHAT_CACHE", _USERS_CACHE)
        built = ensure_demo(lambda event: None)
    _CACHE.mkdir(exist_ok=True)
    link = _CACHE / built.name
    link.symlink_to(built, target_is_directory=True)
    return link
