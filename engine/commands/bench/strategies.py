"""`bench strategies`: whole systems compared in one run, on the same prompts: as published, and at equal device bytes.

Requests that came before (for strategies that learn from them) and profiles are of other prompts of the same domains.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle, islice

import numpy as np
import torch

from engine.backends.offloaded_model import OffloadedModel
from engine.commands.bench.links import COPY_SHARE_OF_LAYER, check_fixed_links, fixed_rate, link_label
from engine.commands.bench.recovery import recovery_after_change
from engine.commands.bench.report import VariantRow
from engine.commands.bench.strategy_rows import StrategyRow, StrategySetup, rows_as_lines, setups
from engine.commands.bench.virtual_run import StepTimes, VirtualRun
from engine.commands.bench.workload import (
    Run,
    Task,
    all_slots,
    best_bytes_per_s,
    engine_for_bench,
    fewest_loads,
    first_experts,
    layer_time_s,
    make_tasks,
    run_interleaved,
    run_task,
    share_of_experts,
)
from engine.commands.domain_profiles import PREDICTOR_SHARE
from engine.commands.routing_recording import record_routing
from engine.commands.task_outcome import OnTaskProgress, TaskOutcome
from engine.config import STRATEGIES, EngineConfig
from engine.experts.expert_runtime import depth_in_effect
from engine.profiles.past_requests import PastRequests
from engine.profiles.predictor_store import Trained
from engine.profiles.predictor_training import TrainingRules, train_predictor
from engine.profiles.prompt_sets import shipped_domains, shipped_prompts
from offload.policies.activations.collection import ActivationCollection
from offload.policies.inputs import PolicyInputs
from offload.policies.slot_planning.curve import mean_curves
from offload.policies.slot_planning.nonuniform import plan_nonuniform
from offload.replay.activation_requests import match_cost_s, request_matrices
from offload.replay.profile import DomainProfile, build_profile
from offload.replay.selection_statistics import Accuracy, accuracy_of, inference_cost_s
from offload.replay.trace import RoutingTrace

_RESIDENCY = 0.25
BASELINE = "on-demand"


def bench_strategies(
    engine: OffloadedModel,
    is_quick: bool,
    links: Sequence[str],
    on_progress: OnTaskProgress,
    is_cancelled: Callable[[], bool],
) -> TaskOutcome:
    """Rebuilds the loaded engine for every strategy, outside its budget, and restores it afterwards.

    Raises ConfigError, WaitCancelled.
    """
    check_fixed_links(links, "Link B is calibrated by the bench of policies.")
    kept = engine.past_requests, engine.load_predictor
    try:
        with engine_for_bench(engine, is_cancelled) as base:
            return _Bench(engine, base, is_quick, on_progress).run(links)
    finally:
        engine.past_requests, engine.load_predictor = kept


class _Bench:
    """One run of the bench."""

    def __init__(self, engine: OffloadedModel, base: EngineConfig, is_quick: bool, on_progress: OnTaskProgress) -> None:
        self._engine, self._base, self._on_progress = engine, base, on_progress
        self._geometry = engine.loaded.plan.geometry
        self._slots = share_of_experts(engine, _RESIDENCY)
        self._num_tok, self._per_domain = (24, 1) if is_quick else (48, 2)
        self._num_past = 4 if is_quick else 50
        self._domains = shipped_domains()[:3]
        self._matrices: list[np.ndarray] = []
        self._traces: dict[str, RoutingTrace] = {}
        self._profiles: dict[str, DomainProfile] = {}
        self._predictors: dict[str, Trained] = {}
        self._max_training_s = 20.0 if is_quick else 60.0

    def run(self, links: Sequence[str]) -> TaskOutcome:
        engine = self._engine
        self._on_progress("answering with every expert resident", 0, 1)
        tasks = make_tasks(engine, self._base, self._num_tok, self._per_domain, self._domains)
        whole = all_slots(engine)
        floor_runs = [run_task(engine, self._base, whole, task, first_experts(whole)) for task in tasks]
        floor_ms = statistics.fmean(time for run in floor_runs for time in run.tpot_ms)
        layer_s = layer_time_s(engine, tasks[0])
        times = StepTimes(layer_s, engine.expert_compute_s, floor_ms / 1000)
        self._learn(floor_ms)
        curves = mean_curves([profile.curves() for profile in self._profiles.values()])
        moved = plan_nonuniform(self._geometry, self._slots, curves).slots_per_layer
        published, equal = setups(engine, self._base, self._slots, moved)
        report: dict[str, object] = {"layer_ms": layer_s * 1000, "floor_ms": floor_ms}
        lines, is_ok = self._heading(tasks, floor_ms), True
        for link in links:
            rate = fixed_rate(link, engine, layer_s)
            for title, table in (("as published", published), ("all at equal device bytes", equal)):
                rows = self._compare(f"{title}, link {link}", table, rate, times, tasks)
                is_ok &= all(row.measured.is_exact for row in rows)
                report[f"{title}, link {link}"] = [row.as_dict() for row in rows]
                lines += ["", f"{title}; {link_label(link, rate)}", *rows_as_lines(rows)]
        learned, learned_lines = self._learned(published, tasks, times)
        told = "every answer's token ids equal the whole model's" if is_ok else "SOME ANSWERS DIFFER"
        return TaskOutcome(is_ok, {"is_exact": is_ok, **report, **learned}, (*lines, "", *learned_lines, told))

    def _learned(
        self, published: dict[str, StrategySetup], tasks: Sequence[Task], times: StepTimes
    ) -> tuple[dict[str, object], list[str]]:
        """What learning from requests costs and is worth."""
        floor_ms, copy_s = times.token_s * 1000, COPY_SHARE_OF_LAYER * times.layer_s
        report, lines = dict[str, object](), list[str]()
        for setup in published.values():
            if setup.config.policies.eviction == "activation":
                bytes_per_s = self._geometry.largest_expert_bytes / copy_s
                report["recovery"], lines = recovery_after_change(self._traces, setup, bytes_per_s, times)
        report["match"], match_line = self._match(tasks, floor_ms)
        report["predictor"], prediction_lines = self._prediction(tasks, floor_ms)
        return report, [*lines, match_line, *prediction_lines]

    def _heading(self, tasks: Sequence[Task], floor_ms: float) -> list[str]:
        return [
            f"{len(tasks)} prompts of {', '.join(self._domains)}, {self._num_tok} greedy tokens each, "
            f"{torch.get_num_threads()} threads; {floor_ms:.1f} ms a token with every expert resident",
            f"{len(self._matrices)} past requests and the profiles are of other prompts; modelled: the same policies "
            "on the recorded routing and a virtual clock, without noise",
        ]

    def _learn(self, floor_ms: float) -> None:
        """Records other prompts: past requests' matrices, profiles, and what predictors are trained on."""
        rules = TrainingRules(self._max_training_s, PREDICTOR_SHARE * floor_ms / 1000)
        for domain in self._domains:
            prompts = shipped_prompts(domain)[self._per_domain :]
            prompts = list(islice(cycle(prompts), self._num_past))  # a second time with other answers: they are sampled

            def progress(stage: str, done: int, total: int, domain: str = domain) -> None:
                self._on_progress(f"{stage} {domain}", done, total)

            trace = record_routing(self._engine, self._engine.fingerprint, domain, prompts, self._num_tok, progress)
            self._traces[domain] = trace
            self._matrices += request_matrices(trace)
            self._profiles[domain] = build_profile(trace, created_s=0.0, weights=self._engine.tuned.weights)
            is_cancelled = self._engine.state.is_cancelled
            self._predictors[domain] = train_predictor(trace, rules, progress, is_cancelled)

    def _collection(self) -> ActivationCollection:
        return self._fill(ActivationCollection(self._geometry))

    def _fill(self, collection: ActivationCollection) -> ActivationCollection:
        """Adds the past requests to `collection`, and returns it."""
        for matrix in self._matrices:
            collection.add(matrix)
        return collection

    def _run(self, setup: StrategySetup, rate: float | None, task: Task) -> Run:
        """From the same past requests every time: what a task leaves behind is forgotten."""
        past = PastRequests(self._engine.fingerprint, self._geometry, is_kept=False)
        self._fill(past.collection)
        self._engine.past_requests = past
        self._engine.load_predictor = lambda domain: self._predictors[task.domain].predictor
        config = replace(setup.config, link_bytes_per_s=rate)
        warm = None
        if config.policies.cache.is_nonuniform:
            warm = self._profiles[task.domain].warm_start(setup.groups.shares)
        return run_task(self._engine, config, setup.groups, task, warm)

    def _compare(
        self, stage: str, table: dict[str, StrategySetup], rate: float | None, times: StepTimes, tasks: Sequence[Task]
    ) -> list[StrategyRow]:
        runs = run_interleaved(
            STRATEGIES,
            tasks,
            lambda name, task: self._run(table[name], rate, task),
            lambda done, total: self._on_progress(stage, done, total),
        )
        bytes_per_s = rate or best_bytes_per_s(runs) or 1e9
        modelled = {name: self._modelled_s(table[name], tasks, runs[name], bytes_per_s, times) for name in table}
        load_ms = self._geometry.largest_expert_bytes / bytes_per_s * 1000
        rows = []
        for name, setup in table.items():
            loads = fewest_loads(tasks, runs[name], setup.groups.shares)
            measured = VariantRow.of(
                *(name, runs[name], runs[BASELINE], loads, load_ms, times.token_s * 1000),
                modelled_speedup=modelled[BASELINE] / modelled[name],
            )
            rows.append(StrategyRow(measured, setup, modelled[name] * 1000))
        return rows

    def _modelled_s(
        self, setup: StrategySetup, tasks: Sequence[Task], runs: Sequence[Run], bytes_per_s: float, times: StepTimes
    ) -> float:
        """Mean seconds a token on the virtual clock."""
        policies, depth = setup.config.policies, depth_in_effect(setup.config, self._geometry)
        return statistics.fmean(
            VirtualRun(
                *(task, (policies.eviction, policies.prefetch, depth), setup.groups, run.initial, bytes_per_s, times),
                self._inputs(task),
            ).tpot_s()
            for task, run in zip(tasks, runs, strict=True)
        )

    def _inputs(self, task: Task) -> PolicyInputs:
        return PolicyInputs(
            self._geometry,
            weights=self._engine.tuned.weights,
            load_collection=self._collection,
            load_predictor=lambda: self._predictors[task.domain].predictor,
        )

    def _prediction(self, tasks: Sequence[Task], floor_ms: float) -> tuple[dict[str, object], list[str]]:
        """What the trained predictors are worth on the timed prompts, and what they cost."""
        report: dict[str, object] = {}
        lines = []
        for domain in self._domains:
            predictor = self._predictors[domain].predictor
            found = Accuracy.total(accuracy_of(predictor, task.trace) for task in tasks if task.domain == domain)
            seconds = inference_cost_s(predictor, self._geometry)
            report[domain] = {**found._asdict(), "ms_per_tok": seconds * 1000, "bytes": predictor.num_bytes}
            lines.append(
                f"predictor of {domain}: exact top k {found.exact_rate or 0:.1%}, at least half "
                f"{found.half_rate or 0:.1%} on the timed prompts; {seconds * 1000:.2f} ms a token "
                f"({seconds * 1000 / floor_ms:.1%} of one), {predictor.num_bytes / 2**20:.1f} MiB"
            )
        return report, lines

    def _match(self, tasks: Sequence[Task], floor_ms: float) -> tuple[dict[str, object], str]:
        """What matching activation matrices costs a token, measured on the recorded routing."""
        collection = self._collection()
        seconds = statistics.median(match_cost_s(task.trace, collection) for task in tasks)
        per_layer_us = seconds / max(self._geometry.num_layers, 1) * 1e6
        share = seconds * 1000 / floor_ms
        line = (
            f"matching {collection.size} matrices ({collection.num_bytes / 2**20:.1f} MiB): {per_layer_us:.0f} us a "
            f"layer, {seconds * 1000:.2f} ms a token, {share:.1%} of a token with every expert resident"
        )
        figures = {"matrices": collection.size, "bytes": collection.num_bytes, "ms_per_tok": seconds * 1000}
        return {**figures, "us_per_layer": per_layer_us, "share_of_floor": share}, line
