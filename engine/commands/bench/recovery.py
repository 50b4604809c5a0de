"""How many requests a strategy that learns from past ones needs after the task has changed: on the virtual clock."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from engine.commands.bench.strategy_rows import StrategySetup
from engine.commands.bench.virtual_run import StepTimes, VirtualRun
from engine.commands.bench.workload import Task
from engine.experts.expert_runtime import depth_in_effect
from offload.policies.activations.collection import ActivationCollection
from offload.policies.inputs import PolicyInputs
from offload.replay.activation_requests import request_matrices
from offload.replay.trace import RoutingTrace

_RECOVERED = 1.05
"""Times the median of the domain's last third of requests."""


def recovery_after_change(
    traces: Mapping[str, RoutingTrace], setup: StrategySetup, bytes_per_s: float, times: StepTimes
) -> tuple[dict[str, object], list[str]]:
    """Runs the domains' requests one after the other, each from what the last one left in the cache and in the
    collection, which begins empty. Per domain, after how many requests the time per token is within 5 % of where it
    ends up."""
    collection: ActivationCollection | None = None
    initial: Sequence[Sequence[int]] | None = None
    report: dict[str, object] = {}
    parts = []
    for domain, trace in traces.items():
        collection = collection or ActivationCollection(trace.geometry)
        tpot_ms = []
        for number in range(trace.num_prompts):
            request = trace.with_prompts([number]).decode_only()
            if not request.num_steps:
                continue
            run = _run(request, setup, initial, bytes_per_s, times, collection)
            tpot_ms.append(run.tpot_s() * 1000)
            initial = run.cache.residents()
            for matrix in request_matrices(request):
                collection.add(matrix)
        ends_at = statistics.median(tpot_ms[-max(len(tpot_ms) // 3, 1) :])
        needed = next((at for at, value in enumerate(tpot_ms) if value <= _RECOVERED * ends_at), len(tpot_ms))
        report[domain] = {"tpot_ms": tpot_ms, "requests_until_recovered": needed}
        parts.append(f"{domain} {needed} of {len(tpot_ms)} (first {tpot_ms[0]:.1f} ms, then {ends_at:.1f})")
    return report, [f"{setup.config.strategy}, requests after a change of task until within 5 %: " + "; ".join(parts)]


def _run(
    trace: RoutingTrace,
    setup: StrategySetup,
    initial: Sequence[Sequence[int]] | None,
    bytes_per_s: float,
    times: StepTimes,
    collection: ActivationCollection,
) -> VirtualRun:
    policies, geometry = setup.config.policies, trace.geometry
    task = Task(trace.domain, [], [], trace, [[{} for _ in geometry.layers]] * trace.num_steps, [])
    return VirtualRun(
        task,
        (policies.eviction, policies.prefetch, depth_in_effect(setup.config, geometry)),
        setup.groups,
        initial or [() for _ in geometry.layers],
        bytes_per_s,
        times,
        PolicyInputs(geometry, load_collection=lambda: collection),
    )
