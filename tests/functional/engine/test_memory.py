"""One byte budget: a fresh engine stays inside it from loading over a long prompt to the end of the answer."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from engine.api import Load
from engine.config import format_bytes
from engine.events import Failed, MemoryUse
from tests.functional.engine.running_engine import RunningEngine, config_of, wait_until

NewEngine = Callable[[], RunningEngine]
PROMPT = "The river ran past the mill, and the miller counted the sacks of grain. " * 20
MIB = 1 << 20


def peak_of_long_turn(engine: RunningEngine) -> MemoryUse:
    """Memory after a prompt of two chunks and an answer of 12."""
    ended = engine.ask(1, PROMPT, max_new_tok=12)
    assert ended.stats.prompt_tok > 300
    assert ended.stats.counters.misses > 0
    return engine.until_snapshot(lambda snapshot: snapshot.phase == "idle").memory


def assert_inside(memory: MemoryUse, process: psutil.Process) -> None:
    planned = {name: format_bytes(num_bytes) for name, num_bytes in memory.parts}
    held = f"peak {format_bytes(memory.peak_rss_bytes)} of {format_bytes(memory.budget_bytes)}: {planned}"
    assert sum(num_bytes for _, num_bytes in memory.parts) <= memory.budget_bytes, held
    assert memory.peak_rss_bytes <= memory.budget_bytes, held
    assert process.memory_info().rss <= memory.budget_bytes, held


def test_the_demo_at_half_residency(new_engine: NewEngine, demo_folder: Path) -> None:
    engine = new_engine()
    engine.load(demo_folder, compute_threads=None)
    memory = peak_of_long_turn(engine)
    assert_inside(memory, engine.process)
    assert dict(memory.parts).keys() >= {"runtime", "resident weights", "KV cache", "expert slots", "workspace"}
    assert memory.peak_rss_bytes > 0.5 * memory.budget_bytes  # a plan that is far too large would pass as well


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_engine_that_waits_for_a_choice_has_imported_no_model_library(new_engine: NewEngine) -> None:
    """It would be in the budget of a model that does without it."""
    engine = new_engine()
    wait_until(lambda: is_idle(engine.process))
    loaded = Path(f"/proc/{engine.process.pid}/maps").read_text()
    assert "numpy" in loaded
    assert "libtorch" not in loaded


def is_idle(process: psutil.Process) -> bool:
    before = process.cpu_times().user
    time.sleep(0.5)
    return 0 < before == process.cpu_times().user


@pytest.mark.long
def test_a_budget_too_small_says_what_would_do_and_that_does(new_engine: NewEngine, demo_folder: Path) -> None:
    engine = new_engine()
    engine.client.send(Load(config_of(demo_folder, memory_bytes=300 * MIB, context_tok=1024)))
    failed = engine.until(Failed)
    assert not failed.is_fatal
    advised = re.search(r"--memory (\d+)MiB", failed.hint)
    assert advised is not None, failed
    wanted = int(advised[1]) * MIB
    ready = engine.load(demo_folder, memory_bytes=wanted, context_tok=1024, compute_threads=None)
    assert ready.context_tok == 1024
    memory = peak_of_long_turn(engine)
    assert memory.budget_bytes == wanted
    assert_inside(memory, engine.process)
