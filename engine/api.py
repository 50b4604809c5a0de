"""The narrow seam between a user interface and the engine's process.

    client = EngineClient(log_path)       starts nothing yet
    client.start()                        spawns the process; torch begins to import
    client.send(Load(config))             -> LoadProgress ... EngineReady | Failed
    client.send(Submit(1, messages))      -> PrefillProgress ... TextDelta ... TurnEnded | Failed
    client.drain() / client.wait_event()  events in order; `client.snapshot` is the latest state
    client.close()                        gone within two seconds

Importing this module loads neither torch nor transformers nor textual.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.config import EngineConfig, SamplingConfig


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation. `role` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Load:
    """Load a model, replacing the one that is loaded."""

    config: EngineConfig


@dataclass(frozen=True, slots=True)
class Submit:
    """Answer the last message of a conversation. One answer at a time; others wait their turn."""

    request_id: int
    messages: tuple[Message, ...]
    sampling: SamplingConfig = field(default_factory=SamplingConfig)


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop an answer or a task; None: whatever is running, loading included. The partial answer is kept."""

    request_id: int | None = None


@dataclass(frozen=True, slots=True)
class SetMode:
    """EXACT or APPROX, from the next token on."""

    mode: str


@dataclass(frozen=True, slots=True)
class Verify:
    """Prove exactness of the loaded model against the unmodified library. Runs outside the engine's budget."""

    request_id: int
    num_tok: int = 32


@dataclass(frozen=True, slots=True)
class BenchOverhead:
    """Time the MoE part of a step and the whole step against plain transformers, interleaved in one run."""

    request_id: int
    num_rounds: int = 30


@dataclass(frozen=True, slots=True)
class Close:
    """End the process."""


Command = Load | Submit | Cancel | SetMode | Verify | BenchOverhead | Close
