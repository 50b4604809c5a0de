"""The parent's side of the engine's process: without a log, used in any order, with an engine that hears nothing."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest

from engine.api import Cancel, Submit
from engine.client import EngineClient
from engine.errors import EngineDiedError
from engine.events import LENGTH, Failed, Notice
from tests.functional.engine.running_engine import RunningEngine, is_gone, seconds_to_close, wait_until
from tests.patience import GONE_S

NewEngine = Callable[[], RunningEngine]
QUESTION = "w5 w9 w77 w30"

# -- a log that cannot be written


@pytest.mark.parametrize("kind", ["a full disk", "a folder"])
def test_without_a_log_it_works_and_errors_are_told_in_full(tmp_path: Path, tiny: Path, kind: str) -> None:
    engine = RunningEngine(Path("/dev/full") if kind == "a full disk" else tmp_path)
    try:
        engine.client.start()
        if kind == "a folder":
            notice = engine.until(Notice)
            assert str(tmp_path) in notice.message
            assert "MOE_CHAT_HOME" in notice.hint
        engine.load(tiny)
        engine.client.send(Submit(1, "no messages"))  # type: ignore[arg-type]
        failed = engine.until(Failed)
        assert (failed.request_id, failed.is_fatal) == (1, False)
        assert failed.message
        assert "It happened in" in failed.hint
        assert ".py:" in failed.hint
        assert engine.ask(2, QUESTION, max_new_tok=2).reason == LENGTH
    finally:
        engine.client.close()


# -- the client's own states


def test_a_client_that_is_used_in_any_order(new_engine: NewEngine, tiny: Path) -> None:
    engine = new_engine()
    engine.client.start()  # once more: the first one is ended
    pid = engine.process.pid
    engine.load(tiny)
    assert engine.process.pid == pid
    engine.client.close()
    engine.client.close()
    assert not engine.client.is_alive
    with pytest.raises(EngineDiedError):
        engine.client.send(Cancel())
    engine.client.start()
    assert engine.client.snapshot is None
    assert engine.load(tiny).num_layers == 3


def test_a_stopped_engine_holds_up_neither_commands_nor_the_end(new_engine: NewEngine, tiny: Path) -> None:
    """It reads nothing: what is sent waits, and closing kills it."""
    engine = new_engine()
    engine.load(tiny)
    engine.process.suspend()
    began_s = monotonic()
    for number in range(50):
        engine.submit(number, "w5 " * 20_000)
    assert monotonic() - began_s < GONE_S
    assert seconds_to_close(engine) < GONE_S


def test_the_client_is_light() -> None:
    code = "import sys, engine.client; assert not {'torch', 'transformers', 'textual'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path.cwd())


@pytest.mark.parametrize("is_loaded", [False, True])
def test_it_dies_with_its_parent(tmp_path: Path, tiny: Path, is_loaded: bool) -> None:
    script = f"""
import sys
from pathlib import Path
from engine import client
from engine.api import Load
from engine.client import EngineClient
from engine.config import EngineConfig
from engine.events import EngineReady

client = EngineClient(Path({str(tmp_path / "engine.log")!r}))
client.start()
if {is_loaded}:
    client.send(Load(EngineConfig(model={str(tiny)!r}, residency=0.5, compute_threads=1)))
    while not isinstance(client.wait_event(), EngineReady):
        pass
print(client.pid, flush=True)
sys.stdin.read()
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path.cwd()
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    with parent.stdin, parent.stdout:
        child = int(parent.stdout.readline())
        assert not is_gone(child)
        parent.kill()
        parent.wait()
        wait_until(lambda: is_gone(child), GONE_S)


@pytest.mark.parametrize("num_free", range(5))
def test_too_few_descriptors_are_an_error_that_says_so(tmp_path: Path, num_free: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    client, lowest_free = EngineClient(tmp_path / "engine.log"), os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free + num_free, hard))
    try:
        with pytest.raises(EngineDiedError) as refused:
            client.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        client.close()
    assert "ulimit -n" in refused.value.hint
