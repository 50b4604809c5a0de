"""A session on a tiny checkpoint in this process, and everything it said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from engine.api import Message, Submit
from engine.config import EngineConfig, SamplingConfig
from engine.events import Event, PrefillProgress, Snapshot, TextDelta, TurnEnded
from engine.process.session import Session
from tests.architectures.tiny import NUM_EXPERTS, TOP_K

CHUNK_TOK = 16


def config_of(folder: Path, **options: Any) -> EngineConfig:
    """k + 1 slots a layer, short chunks and one thread, unless told otherwise."""
    if "memory_bytes" not in options:
        options.setdefault("residency", (TOP_K + 1) / NUM_EXPERTS)
    options.setdefault("prefill_chunk_tok", CHUNK_TOK)
    options.setdefault("compute_threads", 1)
    return EngineConfig(model=str(folder), **options)


def words(first: int, count: int) -> str:
    """`count` different words of the tiny tokenizer."""
    return " ".join(f"w{3 + (first + number * 7) % 120}" for number in range(count))


class Answer(NamedTuple):
    """One turn: its end, and its events in order."""

    end: TurnEnded
    events: list[Event]

    @property
    def streamed(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))

    @property
    def prefill(self) -> list[PrefillProgress]:
        return [event for event in self.events if isinstance(event, PrefillProgress)]


class TinyBench:
    """Use as a context. `ids` are the KV cache's tokens; `is_cancelled` and `wanted_mode` are the test's to set."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.events: list[Event] = []
        self.snapshots: list[Snapshot] = []
        self.is_cancelled: Callable[[], bool] = lambda: False
        self.wanted_mode: str | None = None
        self.on_event: Callable[[Event], None] = lambda event: None
        config = config_of(folder, **options)
        self.session = Session(
            config,
            self._hear,
            self.snapshots.append,
            lambda: self.is_cancelled(),
            lambda: self.wanted_mode or self.session.mode,
        )
        self.engine = self.session.engine

    def __enter__(self) -> TinyBench:
        return self

    def __exit__(self, *exc: object) -> None:
        self.session.close()

    def _hear(self, event: Event) -> None:
        self.events.append(event)
        self.on_event(event)

    @property
    def ids(self) -> list[int]:
        return list(self.engine.decoder.cache.tokens)

    def ask(self, *turns: str, recomputes: bool = False, **sampling: Any) -> Answer:
        """The last of `turns` (user, assistant, user ...) answered, greedily unless told otherwise."""
        sampling.setdefault("temperature", 0.0)
        sampling.setdefault("max_new_tok", 8)
        messages = tuple(Message(("user", "assistant")[i % 2], text) for i, text in enumerate(turns))
        before = len(self.events)
        request = Submit(len(self.events), messages, SamplingConfig(**sampling), recomputes=recomputes)
        self.session.answer(request)
        heard = self.events[before:]
        end = heard[-1]
        assert isinstance(end, TurnEnded)
        self.engine.cache.check_integrity()
        return Answer(end, heard)
