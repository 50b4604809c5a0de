"""`python -m devtools.screen_cost` on a tiny model: the app on screen and a headless answer, by one real engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architectures.tiny import save_checkpoint


@pytest.mark.long
def test_the_bench_measures_both_ways_and_keeps_nothing(tmp_path: Path) -> None:
    model, home = save_checkpoint(tmp_path / "tiny", "qwen3_moe"), tmp_path / "home"
    command = [sys.executable, "-m", "devtools.screen_cost", "--quick", "--rounds", "2", "--json"]
    options = ["--model", str(model), "--residency", "50%", "--threads", "1"]
    ran = subprocess.run(
        [*command, *options],
        env={**os.environ, "MOE_CHAT_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    told = json.loads(ran.stdout)
    assert ran.returncode == (0 if told["is_ok"] else 1), ran.stderr
    assert told["num_pairs"] == told["num_pairs_of_equal_length"] == 2
    assert all(pair[way]["tpot_ms"] > 0 for pair in told["pairs"] for way in ("on_screen", "headless"))
    assert "model.name" in told["settings"]
    assert not list(home.rglob("chats.db"))
    assert not list(home.rglob("settings.toml"))
