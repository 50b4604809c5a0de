"""The outcome of a long-running task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

OnTaskProgress = Callable[[str, int, int], None]
"""`(stage, done, total)`."""


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """`report` is JSON-serialisable; `lines` is the same as text for a person."""

    is_ok: bool
    report: dict[str, object]
    lines: tuple[str, ...]
