"""`bench policies`: MoE-CORE's policies compared in one run, on the same prompts, and with the physical limit.

A quarter of the experts is resident. Where a link is emulated (see `links`), the tables say so.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from engine.backends.offloaded_model import OffloadedModel
from engine.commands.bench.bench_profiles import profiles_of
from engine.commands.bench.links import PAPER_RATIO, RATIO_OF_PAPER, check_link, fixed_rate
from engine.commands.bench.report import VariantRow, rows_as_lines
from engine.commands.bench.substitution import ALPHAS, QUICK_ALPHAS, sweep_alpha
from engine.commands.bench.variants import BASELINE, FLOOR, QUICK_VARIANTS, VARIANTS
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
from engine.commands.task_outcome import OnTaskProgress, TaskOutcome
from engine.config import APPROX, EngineConfig
from offload.policies.eviction import EvictionPolicy, make_eviction
from offload.policies.inputs import PolicyInputs
from offload.policies.slot_planning.curve import mean_curves
from offload.policies.slot_planning.nonuniform import plan_nonuniform
from offload.replay.belady import belady_pool_loads
from offload.replay.profile import DomainProfile
from offload.replay.replay import replay

_RESIDENCY = 0.25
_BISECTIONS = 16


def bench_policies(
    engine: OffloadedModel,
    is_quick: bool,
    links: Sequence[str],
    on_progress: OnTaskProgress,
    is_cancelled: Callable[[], bool],
) -> TaskOutcome:
    """Rebuilds the loaded engine for every variant, outside its budget, and restores it afterwards. Raises
    WaitCancelled."""
    with engine_for_bench(engine, is_cancelled) as base:
        return _Bench(engine, base, is_quick, on_progress).run(links)


class _Bench:
    """One run of the bench."""

    def __init__(self, engine: OffloadedModel, base: EngineConfig, is_quick: bool, on_progress: OnTaskProgress) -> None:
        self._engine, self._base, self._on_progress = engine, base, on_progress
        self._expert_bytes = engine.loaded.plan.geometry.largest_expert_bytes
        self._slots = share_of_experts(engine, _RESIDENCY)
        self._num_tok, self._per_domain = (24, 1) if is_quick else (48, 3)
        self._num_timed, self._num_profiled = (3, 2) if is_quick else (21, 6)
        self._alphas = QUICK_ALPHAS if is_quick else ALPHAS
        self._names = QUICK_VARIANTS if is_quick else tuple(VARIANTS)
        self._profiles: dict[str, DomainProfile] = {}
        self._moved_slots = self._slots

    def run(self, links: Sequence[str]) -> TaskOutcome:
        engine = self._engine
        for link in links:
            check_link(link)
        self._on_progress("answering with every expert resident", 0, 1)
        tasks = make_tasks(engine, self._base, self._num_tok, self._per_domain)
        timed = tasks[: self._num_timed]
        self._make_profiles(timed)
        floor_ms = self._floor_ms(timed[:1])
        layer_s = layer_time_s(engine, timed[0])
        report: dict[str, object] = {
            "layer_ms": layer_s * 1000,
            "threads": engine.backend.num_threads,
            "slots": list(self._slots),
            "moved_slots": list(self._moved_slots),
        }
        lines = [
            f"{len(timed)} prompts, {self._num_tok} greedy tokens each, {self._slots[0]} slots a layer, "
            f"{engine.backend.num_threads} threads; {layer_s * 1000:.2f} ms a layer with all resident",
            "modelled: the same routing through the same policies on a virtual clock, without noise, and with copies "
            "that cost compute nothing",
            f"profiles of {self._num_profiled} other prompts a domain; {self._num_moved()} slots moved by them",
        ]
        is_ok = True
        for link in links:
            rate = self._rate(link, layer_s, floor_ms, timed)
            rows = self._compare(link, rate, layer_s, timed)
            is_ok &= all(row.is_exact for row in rows if VARIANTS[row.name].mode != APPROX)
            report[f"link {link}"] = {"bytes_per_s": rate, "variants": [row.as_dict() for row in rows]}
            lines += ["", *rows_as_lines(link, rate, rows)]
        report["eviction"], eviction_lines = self._evictions(tasks)
        report["substitution"], substitution_lines = self._substitution(timed)
        lines += ["", *eviction_lines, "", *substitution_lines]
        return TaskOutcome(is_ok, {"is_exact": is_ok, **report}, tuple(lines))

    def _make_profiles(self, timed: Sequence[Task]) -> None:
        domains = list(dict.fromkeys(task.domain for task in timed))
        self._profiles = profiles_of(
            self._engine, domains, self._per_domain, self._num_profiled, self._num_tok, self._on_progress
        )
        curves = mean_curves([profile.curves() for profile in self._profiles.values()])
        geometry = self._engine.loaded.plan.geometry
        self._moved_slots = plan_nonuniform(geometry, self._slots, curves).slots_per_layer

    def _num_moved(self) -> int:
        return sum(max(moved - slots, 0) for moved, slots in zip(self._moved_slots, self._slots, strict=True))

    # -- calibration --------------------------------------------------------------------------------------------------

    def _floor_ms(self, tasks: Sequence[Task]) -> float:
        slots = all_slots(self._engine)
        runs = [run_task(self._engine, self._base, slots, task, first_experts(slots)) for task in tasks]
        return statistics.median(time for run in runs for time in run.tpot_ms)

    def _rate(self, link: str, layer_s: float, floor_ms: float, tasks: Sequence[Task]) -> float | None:
        """Bytes per second of a link by name; None: the machine's own."""
        if link != RATIO_OF_PAPER:
            return fixed_rate(link, self._engine, layer_s)
        self._on_progress("calibrating link B", 0, 1)
        times = StepTimes(layer_s, self._engine.expert_compute_s, floor_ms / 1000)
        runs = [self._run(BASELINE, None, task) for task in tasks]
        slowest, fastest = (self._expert_bytes / layer_s * factor for factor in (1 / 64, 64))
        for _ in range(_BISECTIONS):  # on the virtual clock: measured times contain noise
            middle = math.sqrt(slowest * fastest)
            tpot_s = self._modelled_s(BASELINE, tasks, runs, middle, times)
            assert tpot_s is not None, "load-on-demand is exact"
            slowest, fastest = (middle, fastest) if tpot_s > PAPER_RATIO * times.token_s else (slowest, middle)
        return middle

    # -- variants -----------------------------------------------------------------------------------------------------

    def _config(self, name: str, rate: float | None) -> EngineConfig:
        variant = VARIANTS[name]
        return replace(
            self._base,
            eviction=variant.eviction,
            prefetch=variant.prefetch,
            prefetch_depth=variant.depth,
            mode=variant.mode,
            link_bytes_per_s=rate,
        )

    def _slots_of(self, name: str) -> tuple[int, ...]:
        variant = VARIANTS[name]
        if variant.is_whole:
            return all_slots(self._engine)
        return self._moved_slots if variant.has_moved_slots else self._slots

    def _run(self, name: str, rate: float | None, task: Task) -> Run:
        variant, slots = VARIANTS[name], self._slots_of(name)
        warm: Sequence[Sequence[int]] | None = None
        if variant.is_whole:
            warm = first_experts(slots)
        elif variant.has_profile:
            warm = self._profiles[task.domain].warm_start(slots)
        return run_task(self._engine, self._config(name, rate), slots, task, warm)

    def _compare(self, link: str, rate: float | None, layer_s: float, tasks: Sequence[Task]) -> list[VariantRow]:
        runs = run_interleaved(
            self._names,
            tasks,
            lambda name, task: self._run(name, rate, task),
            lambda done, total: self._on_progress(f"link {link}", done, total),
        )
        bytes_per_s = rate or best_bytes_per_s(runs)
        load_ms = self._expert_bytes / bytes_per_s * 1000 if bytes_per_s else 0.0
        floor_ms = statistics.fmean(time for run in runs[FLOOR] for time in run.tpot_ms)
        times = StepTimes(layer_s, self._engine.expert_compute_s, floor_ms / 1000)
        modelled = {name: self._modelled_s(name, tasks, runs[name], bytes_per_s, times) for name in self._names}
        baseline_s = modelled[BASELINE]
        return [
            VariantRow.of(
                name,
                runs[name],
                runs[BASELINE],
                fewest_loads(tasks, runs[name], self._slots_of(name)),
                load_ms,
                floor_ms,
                baseline_s / own_s if baseline_s is not None and own_s is not None else None,
            )
            for name, own_s in modelled.items()
        ]

    def _modelled_s(
        self, name: str, tasks: Sequence[Task], runs: Sequence[Run], bytes_per_s: float | None, times: StepTimes
    ) -> float | None:
        """Mean seconds a token on the virtual clock. None for APPROX (it changes routing), or if nothing was copied."""
        variant, slots = VARIANTS[name], self._slots_of(name)
        if variant.mode == APPROX or bytes_per_s is None:
            return None
        policies, weights = (variant.eviction, variant.prefetch, variant.depth), self._engine.tuned.weights
        geometry = self._engine.loaded.plan.geometry
        virtual = [
            VirtualRun(
                *(task, policies, slots, run.initial, bytes_per_s, times), PolicyInputs(geometry, weights=weights)
            )
            for task, run in zip(tasks, runs, strict=True)
        ]
        return statistics.fmean(run.tpot_s() for run in virtual)

    def _evictions(self, tasks: Sequence[Task]) -> tuple[dict[str, object], list[str]]:
        """Loads by eviction policy and domain, replayed on the recorded routing, and the bound."""
        report: dict[str, object] = {}
        lines = [
            "loads of the recorded answers by eviction policy (replay, no prefetch; history with "
            f"{self._engine.tuned}), and the pool-wide bound"
        ]
        lines.append(f"  {'domain':<14}{'history':>9}{'lru':>9}{'lfu':>9}{'bound':>9}")
        for domain in dict.fromkeys(task.domain for task in tasks):
            loads = dict.fromkeys(("history", "lru", "lfu", "bound"), 0)
            for task in (task for task in tasks if task.domain == domain):
                for name in ("history", "lru", "lfu"):
                    loads[name] += replay(task.trace, self._eviction(name), self._slots).loads
                loads["bound"] += belady_pool_loads(task.trace, self._slots)
            report[domain] = loads
            lines.append(f"  {domain:<14}" + "".join(f"{loads[name]:9d}" for name in loads))
        return report, lines

    def _eviction(self, name: str) -> EvictionPolicy:
        return make_eviction(name, self._engine.loaded.plan.geometry, self._engine.tuned.weights)

    def _substitution(self, tasks: Sequence[Task]) -> tuple[list[dict[str, object]], list[str]]:
        rows = sweep_alpha(self._engine, self._base, tasks, self._alphas, self._on_progress)
        head = "substitution over alpha: availability (hits + substituted of routed), KL to exact, top-1 agreement"
        return [asdict(row) for row in rows], [head, *(row.as_line() for row in rows)]
