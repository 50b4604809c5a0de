"""Engine processes on tiny checkpoints, ended with the test whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.architectures.tiny import save_endless_checkpoint
from tests.functional.engine.running_engine import RunningEngine


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint that never ends an answer by itself; not to be changed."""
    return save_endless_checkpoint(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def new_engine(tmp_path: Path) -> Iterator[Callable[[], RunningEngine]]:
    """Factory of started engines."""
    started: list[RunningEngine] = []

    def start() -> RunningEngine:
        engine = RunningEngine(tmp_path / "engine.log")
        started.append(engine)
        engine.client.start()
        return engine

    yield start
    for engine in started:
        engine.client.close()


@pytest.fixture(scope="module")
def shared_engine(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Iterator[RunningEngine]:
    """One engine for all tests that leave it as they found it: loaded with the tiny checkpoint, and idle."""
    engine = RunningEngine(tmp_path_factory.mktemp("log") / "engine.log")
    engine.client.start()
    engine.load(tiny)
    yield engine
    engine.client.close()
