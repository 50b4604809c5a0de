"""Checks what an answer depends on, without loading a model; each finding says what to do about it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Protocol

from engine.commands.diagnose.check import FAIL, Check
from engine.commands.diagnose.machine import MachineExamination
from engine.commands.diagnose.model import ModelExamination
from engine.commands.task_outcome import OnTaskProgress, TaskOutcome
from engine.config import EngineConfig
from engine.errors import MoeChatError
from offload.errors import OffloadError, WaitCancelled


class Examination(Protocol):
    """A group of checks."""

    def steps(self) -> Iterator[tuple[str, Callable[[], Check]]]:
        """(name, function that checks), in order; a later check may use what an earlier one found."""
        ...


def diagnose(config: EngineConfig, on_progress: OnTaskProgress, is_cancelled: Callable[[], bool]) -> TaskOutcome:
    """Runs all checks. One that raises counts as failed, and the next one runs. Raises WaitCancelled."""
    examinations: tuple[Examination, ...] = (MachineExamination(config), ModelExamination(config, is_cancelled))
    steps = [step for examination in examinations for step in examination.steps()]
    checks = []
    for number, (name, run_check) in enumerate(steps):
        if is_cancelled():
            raise WaitCancelled("Stopped.")
        on_progress(f"checking: {name}", number, len(steps))
        checks.append(_checked(name, run_check))
    return TaskOutcome(
        is_ok=all(check.verdict != FAIL for check in checks),
        report={"checks": [asdict(check) for check in checks]},
        lines=tuple(line for check in checks for line in _lines(check)),
    )


def _checked(name: str, run_check: Callable[[], Check]) -> Check:
    try:
        return run_check()
    except WaitCancelled:
        raise
    except (MoeChatError, OffloadError) as error:
        return Check(name, FAIL, error.message, error.hint)
    except Exception as error:  # noqa: BLE001 - any failure is reported as a finding
        traceback.print_exc()
        return Check(name, FAIL, f"could not be checked: {type(error).__name__}: {error}", "See the engine's log.")


def _lines(check: Check) -> tuple[str, ...]:
    found = f"{check.verdict:<6}{check.name:<15}{check.found}"
    return (found, f"{'':21}-> {check.advice}") if check.advice else (found,)
