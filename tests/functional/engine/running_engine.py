"""The engine's process, watched from outside."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

import psutil

from engine.api import Load, Message, Submit
from engine.client import EngineClient
from engine.config import EngineConfig, SamplingConfig
from engine.events import EngineReady, Event, Failed, Snapshot, TurnEnded
from tests.patience import PATIENCE_S

Kind = TypeVar("Kind", bound=Event)


class RunningEngine:
    """A client with what was heard: `heard` are all events, with the seconds at which they were taken."""

    def __init__(self, log_path: Path) -> None:
        self.client = EngineClient(log_path)
        self.heard: list[tuple[float, Event]] = []

    def until(self, kind: type[Kind], which: Callable[[Kind], bool] = lambda event: True) -> Kind:
        """The next event of a kind. Any other Failed is an error of the test."""
        deadline = monotonic() + PATIENCE_S
        while (left := deadline - monotonic()) > 0:
            event = self.client.wait_event(left)
            if event is None:
                break
            self.heard.append((monotonic(), event))
            if isinstance(event, kind) and which(event):
                return event
            assert kind is Failed or not isinstance(event, Failed), event
        raise AssertionError(f"no {kind.__name__} came")

    def load(self, folder: Path, **options: Any) -> EngineReady:
        """Loads and waits until it is ready."""
        self.client.send(Load(config_of(folder, **options)))
        return self.until(EngineReady)

    def submit(self, request_id: int, text: str, **sampling: Any) -> None:
        sampling.setdefault("temperature", 0.0)
        self.client.send(Submit(request_id, (Message("user", text),), SamplingConfig(**sampling)))

    def ask(self, request_id: int, text: str, **sampling: Any) -> TurnEnded:
        """Submits and waits for the end of the answer."""
        self.submit(request_id, text, **sampling)
        return self.until(TurnEnded, lambda event: event.request_id == request_id)

    def until_snapshot(self, which: Callable[[Snapshot], bool]) -> Snapshot:
        """The first snapshot that is as wanted."""
        wait_until(lambda: self.client.snapshot is not None and which(self.client.snapshot))
        snapshot = self.client.snapshot
        assert snapshot is not None
        return snapshot

    @property
    def process(self) -> psutil.Process:
        """The child as the system sees it."""
        pid = self.client.pid
        assert pid is not None
        return psutil.Process(pid)


def config_of(folder: Path, **options: Any) -> EngineConfig:
    """Half of the experts, one thread, the back end that is fastest, unless told otherwise."""
    options.setdefault("backend", "auto")
    if "memory_bytes" not in options:
        options.setdefault("residency", 0.5)
    options.setdefault("compute_threads", 1)
    return EngineConfig(model=str(folder), **options)


def wait_until(is_true: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Looks again and again; an AssertionError when it does not come true."""
    deadline = monotonic() + patience_s
    pause = threading.Event()
    while not is_true():
        assert monotonic() < deadline, "it did not come true"
        pause.wait(0.005)


def is_gone(pid: int) -> bool:
    """No such process, or nothing left of it but its entry."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def seconds_to_close(engine: RunningEngine) -> float:
    """Closes, and waits until no process is left: how long both took."""
    pids = [engine.process.pid, *(child.pid for child in engine.process.children(recursive=True))]
    start = monotonic()
    engine.client.close()
    wait_until(lambda: all(is_gone(pid) for pid in pids) and not engine.client.is_alive)
    return monotonic() - start
