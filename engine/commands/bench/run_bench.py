"""Which bench a request is for. Each is imported when it is run: most import the model library."""

from __future__ import annotations

from collections.abc import Callable

from engine.api import Bench, BenchDivergence, BenchOverhead, BenchPolicies, BenchPrediction
from engine.backends.offloaded_model import OffloadedModel
from engine.commands.task_outcome import OnTaskProgress, TaskOutcome


def run_bench(
    engine: OffloadedModel, command: Bench, progress: OnTaskProgress, is_cancelled: Callable[[], bool]
) -> TaskOutcome:
    """Raises what the bench raises."""
    match command:
        case BenchOverhead():
            from engine.commands.bench.overhead import bench_overhead

            return bench_overhead(engine, command.num_rounds, progress, is_cancelled)
        case BenchPolicies():
            from engine.commands.bench.policies import bench_policies

            return bench_policies(engine, command.is_quick, command.links, progress, is_cancelled)
        case BenchPrediction():
            from engine.commands.bench.prediction import bench_prediction

            return bench_prediction(engine, command.is_quick, progress, is_cancelled)
        case BenchDivergence():
            from engine.commands.bench.divergence import bench_divergence

            return bench_divergence(engine, command.num_tok, progress, is_cancelled)
        case _:
            from engine.commands.bench.prefill import bench_prefill

            return bench_prefill(engine, command.is_quick, command.links, progress, is_cancelled)
