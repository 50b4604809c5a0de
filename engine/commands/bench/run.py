"""Which bench a command asks for: each is imported only then."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.api import Bench, BenchDivergence, BenchOverhead, BenchPolicies, BenchPrediction, BenchStrategies

if TYPE_CHECKING:
    from engine.backends.offloaded_model import OffloadedModel
    from engine.commands.task_outcome import OnTaskProgress, TaskOutcome


def run_bench(
    engine: OffloadedModel, command: Bench, progress: OnTaskProgress, is_cancelled: Callable[[], bool]
) -> TaskOutcome:
    """What each raises, and WaitCancelled. The engine is as it was afterwards, its expert cache empty."""
    if isinstance(command, BenchOverhead):
        from engine.commands.bench.overhead import bench_overhead

        return bench_overhead(engine, command.num_rounds, progress, is_cancelled)
    if isinstance(command, BenchPolicies):
        from engine.commands.bench.policies import bench_policies

        return bench_policies(engine, command.is_quick, command.links, progress, is_cancelled)
    if isinstance(command, BenchStrategies):
        from engine.commands.bench.strategies import bench_strategies

        return bench_strategies(engine, command.is_quick, command.links, progress, is_cancelled)
    if isinstance(command, BenchDivergence):
        from engine.commands.bench.divergence import bench_divergence

        return bench_divergence(engine, command.num_tok, progress, is_cancelled)
    if isinstance(command, BenchPrediction):
        from engine.commands.bench.prediction import bench_prediction

        return bench_prediction(engine, command.is_quick, progress, is_cancelled)
    from engine.commands.bench.prefill import bench_prefill

    return bench_prefill(engine, command.is_quick, command.links, progress, is_cancelled)
