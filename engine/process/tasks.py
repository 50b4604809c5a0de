"""Which function carries out which task. Each is imported when it is asked for: an engine that only chats has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.api import (
    Bench,
    BenchPeers,
    BuildProfile,
    DeleteProfile,
    Diagnose,
    Plan,
    RecordTrace,
    ResetEviction,
    ShowProfile,
    TuneEviction,
    Verify,
)
from engine.events import LoadProgress

if TYPE_CHECKING:
    from engine.commands.task_outcome import OnTaskProgress, TaskOutcome
    from engine.process.session import Session

UnloadedTask = Plan | Diagnose | ResetEviction | BenchPeers
"""Tasks that need no model in memory."""
Task = Verify | Bench | BuildProfile | ShowProfile | DeleteProfile | RecordTrace | TuneEviction | UnloadedTask
"""Everything that ends with TaskEnded."""


def run_unloaded(command: UnloadedTask, progress: OnTaskProgress, is_cancelled: Callable[[], bool]) -> TaskOutcome:
    """A task that needs no model in memory. Raises what the task raises, WaitCancelled where it is stopped."""
    if isinstance(command, Diagnose):
        from engine.commands.diagnose.diagnose import diagnose

        return diagnose(command.config, progress, is_cancelled)
    if isinstance(command, BenchPeers):
        from engine.commands.bench.peers.peers import bench_peers

        return bench_peers(command, progress, is_cancelled)
    from engine.checkpoint.model_source import resolve_model

    def load_progress(event: LoadProgress) -> None:
        progress(event.stage, event.done, event.total)

    folder = resolve_model(command.config.model, load_progress, is_cancelled)
    if isinstance(command, ResetEviction):
        from engine.commands.tune_eviction import reset_eviction

        return reset_eviction(folder)
    from engine.commands.plan_model import plan_model

    progress("planning the memory", 0, 0)
    return plan_model(command.config, folder, is_cancelled)


def run_on(session: Session, command: Task, progress: OnTaskProgress, is_cancelled: Callable[[], bool]) -> TaskOutcome:
    """A task on the loaded model. Raises what the task raises, WaitCancelled where it is stopped."""
    if isinstance(command, Verify):
        from engine.commands.verify.verify import verify

        return verify(session.engine, command.num_tok, progress, is_cancelled)
    if isinstance(command, Bench):
        from engine.commands.bench.run import run_bench

        return run_bench(session.engine, command, progress, is_cancelled)
    if isinstance(command, RecordTrace):
        from engine.commands.record_trace import record_trace

        return record_trace(session.engine, command, progress)
    if isinstance(command, TuneEviction):
        from engine.commands.tune_eviction import tune_eviction

        return tune_eviction(session.engine, command, progress, is_cancelled)
    if isinstance(command, BuildProfile):
        return session.profiles.build(command, progress)
    if isinstance(command, ShowProfile):
        return session.profiles.show(command.domain, command.has_plan)
    assert isinstance(command, DeleteProfile), command
    return session.profiles.delete(command.domain)
