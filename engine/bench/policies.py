"""MoE-CORE's policies against each other and against the physical limit: same model, same prompts, one run.

After the ablations of "MoE-CORE: Coordinated Expert Offload" (load-on-demand, prefetch depth, eviction, substitution).
A quarter of the experts is resident. Link A makes one copy take 0.95 of a layer's time, as in the paper's best case;
link B makes load-on-demand cost 1.75x all-resident, the paper's ratio; both are emulated and labelled.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from engine.bench.report import VariantRow, rows_as_lines
from engine.bench.workload import Run, Task, all_slots, interleaved, layer_time_s, make_tasks, run_task
from engine.config import APPROX, EXACT, EngineConfig, parse_rate
from engine.offloaded_model import OffloadedModel
from engine.planning import require_free
from engine.task_outcome import OnTaskProgress, TaskOutcome
from offload.belady import belady_pool_loads
from offload.counters import Counters
from offload.errors import WaitCancelled
from offload.eviction import make_eviction
from offload.replay import replay

_RESIDENCY = 0.25
_COPY_SHARE_OF_LAYER = 0.95
_PAPER_RATIO = 1.75
_ALPHAS = (0.0, 0.02, 0.05, 0.1, 0.2)
_QUICK_ALPHAS = (0.0, 0.05, 0.2)


@dataclass(frozen=True, slots=True)
class Variant:
    """A choice of policies."""

    eviction: str
    prefetch: str
    depth: int = 1
    mode: str = EXACT
    is_whole: bool = False
    """Every expert has a slot and is there: the compute floor."""


_FLOOR, _BASELINE = "all resident", "load-on-demand"
VARIANTS = {
    _FLOOR: Variant("lru", "none", is_whole=True),
    _BASELINE: Variant("lru", "none"),
    "depth 0": Variant("history", "none"),
    "depth 1": Variant("history", "router-ahead", 1),
    "depth 2": Variant("history", "router-ahead", 2),
    "depth 3": Variant("history", "router-ahead", 3),
    "floor": Variant("history", "router-ahead-floor"),
    "expected gain": Variant("history", "router-ahead-gain"),
    "layers ahead": Variant("history", "layers-ahead-gain"),
    "lru, depth 1": Variant("lru", "router-ahead", 1),
    "lfu, depth 1": Variant("lfu", "router-ahead", 1),
    "approx": Variant("history", "router-ahead", 1, APPROX),
}


def bench_policies(
    engine: OffloadedModel,
    is_quick: bool,
    links: Sequence[str],
    on_progress: OnTaskProgress,
    is_cancelled: Callable[[], bool],
) -> TaskOutcome:
    """Runs outside the engine's budget, on the loaded model; the engine is as it was afterwards. Raises
    WaitCancelled."""
    kept_config, kept_slots, was_approx = engine.config, engine.budget.slots_per_layer, engine.state.is_approx
    kept_after_layer, engine.state.after_layer = engine.state.after_layer, lambda layer: _stop_if(is_cancelled)
    try:
        return _Bench(engine, is_quick, on_progress).run(links)
    finally:
        engine.state.after_layer, engine.state.is_approx = kept_after_layer, was_approx
        engine.rebuild(kept_config, kept_slots)


def _stop_if(is_cancelled: Callable[[], bool]) -> None:
    if is_cancelled():
        raise WaitCancelled("Stopped.")


class _Bench:
    """One run of the bench."""

    def __init__(self, engine: OffloadedModel, is_quick: bool, on_progress: OnTaskProgress) -> None:
        self._engine, self._on_progress = engine, on_progress
        self._base = replace(engine.config, memory_bytes=None, residency=None, mode=EXACT, link_bytes_per_s=None)
        layers = engine.loaded.plan.geometry.layers
        self._slots = tuple(max(layer.top_k + 1, round(_RESIDENCY * layer.num_experts)) for layer in layers)
        self._num_tok, self._per_domain = (16, 1) if is_quick else (48, 3)
        self._num_timed = 3 if is_quick else 21
        self._alphas = _QUICK_ALPHAS if is_quick else _ALPHAS

    def run(self, links: Sequence[str]) -> TaskOutcome:
        engine = self._engine
        for link in links:
            self._check_name(link)
        require_free(engine.loaded.plan.geometry.expert_bytes_total, "Holding every expert, to measure the floor,")
        self._on_progress("answering with every expert resident", 0, 1)
        engine.rebuild(self._base, all_slots(engine))
        tasks = make_tasks(engine, self._num_tok, self._per_domain)
        timed = tasks[: self._num_timed]
        floor_ms = self._floor_ms(timed[:1])
        layer_s = layer_time_s(engine, timed[0])
        report: dict[str, object] = {
            "layer_ms": layer_s * 1000,
            "threads": torch.get_num_threads(),
        }
        lines = [
            f"{len(timed)} prompts, {self._num_tok} greedy tokens each, {self._slots[0]} slots a layer, "
            f"{torch.get_num_threads()} threads; {layer_s * 1000:.2f} ms a layer with all resident",
        ]
        is_ok = True
        for link in links:
            rate = self._rate(link, layer_s, floor_ms, timed)
            rows = self._compare(link, rate, timed)
            is_ok &= all(row.is_exact for row in rows if row.name != "approx")
            report[f"link {link}"] = {"bytes_per_s": rate, "variants": [row.as_dict() for row in rows]}
            lines += ["", *rows_as_lines(link, rate, rows)]
        report["eviction"], eviction_lines = self._evictions(tasks)
        report["substitution"], substitution_lines = self._substitution(timed)
        lines += ["", *eviction_lines, "", *substitution_lines]
        return TaskOutcome(is_ok, {"is_exact": is_ok, **report}, tuple(lines))

    # -- calibration --------------------------------------------------------------------------------------------------

    @staticmethod
    def _check_name(link: str) -> None:
        """Raises ConfigError before anything is measured."""
        if link not in ("A", "B", "own"):
            parse_rate(link)

    def _floor_ms(self, tasks: Sequence[Task]) -> float:
        runs = [run_task(self._engine, self._base, all_slots(self._engine), task) for task in tasks]
        return statistics.median(time for run in runs for time in run.tpot_ms)

    def _expert_bytes(self) -> int:
        return max(layer.expert_bytes for layer in self._engine.loaded.plan.geometry.layers)

    def _rate(self, link: str, layer_s: float, floor_ms: float, tasks: Sequence[Task]) -> float | None:
        """Bytes per second of a link by name; None: the machine's own."""
        if link == "own":
            return None
        if link not in ("A", "B"):
            return parse_rate(link)
        if link == "A":
            return self._expert_bytes() / (_COPY_SHARE_OF_LAYER * layer_s)
        self._on_progress("calibrating link B", 0, 2)
        rate = self._expert_bytes() / layer_s
        for trial in range(2):
            run = self._run(_BASELINE, rate, tasks[trial % len(tasks)])
            excess = statistics.median(run.tpot_ms) / floor_ms - 1
            rate = min(max(rate * max(excess, 0.05) / (_PAPER_RATIO - 1), rate / 8), rate * 8)
        return rate

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

    def _run(self, name: str, rate: float | None, task: Task) -> Run:
        is_whole = VARIANTS[name].is_whole
        slots = all_slots(self._engine) if is_whole else self._slots
        warm = [range(num_slots) for num_slots in slots] if is_whole else None
        return run_task(self._engine, self._config(name, rate), slots, task, warm)

    def _compare(self, link: str, rate: float | None, tasks: Sequence[Task]) -> list[VariantRow]:
        names, runs = list(VARIANTS), {name: list[Run]() for name in VARIANTS}
        pairs = interleaved(names, tasks, lambda name, task: self._run(name, rate, task))
        for done, (name, run) in enumerate(pairs, start=1):
            runs[name].append(run)
            self._on_progress(f"link {link}", done, len(names) * len(tasks))
        best_rate = rate or self._engine.link.best_bytes_per_s or 1e9
        floor_ms = statistics.median(time for run in runs[_FLOOR] for time in run.tpot_ms)
        limit_ms = max(floor_ms, self._bound_s(tasks, runs[_BASELINE], best_rate) * 1000)
        return [VariantRow.of(name, runs[name], limit_ms, runs[_BASELINE]) for name in names]

    def _bound_s(self, tasks: Sequence[Task], runs: Sequence[Run], rate: float) -> float:
        """Seconds a token spends on the fewest loads any policy could do, on this link."""
        pairs = zip(tasks, runs, strict=True)
        loads = sum(belady_pool_loads(task.trace, self._slots, run.initial) for task, run in pairs)
        return loads * self._expert_bytes() / rate / sum(len(run.tpot_ms) for run in runs)

    def _evictions(self, tasks: Sequence[Task]) -> tuple[dict[str, object], list[str]]:
        """Loads by eviction policy and domain, replayed on the recorded routing, and the bound."""
        report: dict[str, object] = {}
        lines = ["loads of the recorded answers by eviction policy (replay, no prefetch), and the pool-wide bound"]
        lines.append(f"  {'domain':<14}{'history':>9}{'lru':>9}{'lfu':>9}{'bound':>9}")
        for domain in dict.fromkeys(task.domain for task in tasks):
            loads = dict.fromkeys(("history", "lru", "lfu", "bound"), 0)
            for task in (task for task in tasks if task.domain == domain):
                for name in ("history", "lru", "lfu"):
                    loads[name] += replay(task.trace, make_eviction(name, task.trace.geometry), self._slots).loads
                loads["bound"] += belady_pool_loads(task.trace, self._slots)
            report[domain] = loads
            lines.append(f"  {domain:<14}" + "".join(f"{loads[name]:9d}" for name in loads))
        return report, lines

    def _substitution(self, tasks: Sequence[Task]) -> tuple[dict[str, object], list[str]]:
        """Availability and distance from exact over alpha, at half and a quarter of the experts."""
        report: dict[str, object] = {}
        lines = ["substitution over alpha: availability (hits + substituted of routed), KL to exact, top-1 agreement"]
        for share in (0.5, 0.25):
            layers = self._engine.loaded.plan.geometry.layers
            slots = tuple(max(layer.top_k + 1, round(share * layer.num_experts)) for layer in layers)
            for number, alpha in enumerate(self._alphas):
                self._on_progress("substitution", number, len(self._alphas))
                row = self._distance(alpha, slots, tasks)
                report[f"{share:.0%} resident, alpha {alpha:g}"] = row
                lines.append(
                    f"  {share:4.0%} resident  alpha {alpha:<5g}  availability {row['availability']:.2%}   "
                    f"KL {row['kl']:.4f}   top-1 {row['top1']:.1%}   substituted {row['substituted']:.2%}"
                )
        return report, lines

    def _distance(self, alpha: float, slots: Sequence[int], tasks: Sequence[Task]) -> dict[str, float]:
        engine = self._engine
        kl, agree, count, total = 0.0, 0, 0, Counters()
        for task in tasks:
            engine.rebuild(replace(self._base, mode=APPROX, alpha=alpha, prefetch="none"), slots)
            engine.set_mode(APPROX)
            engine.decoder.prefill(task.prompt, lambda done_tok: None)
            before = engine.cache.total_counters()
            for exact, approx in zip(task.logits[1:], engine.decoder.force(task.answer[:-1]), strict=True):
                p, q = exact.float().log_softmax(-1), approx.float().log_softmax(-1)
                kl += float((p.exp() * (p - q)).sum())
                agree += int(exact.argmax() == approx.argmax())
                count += 1
            total = Counters.total((total, engine.cache.total_counters() - before))
        return {
            "availability": total.availability_rate or 0.0,
            "substituted": total.substituted_rate or 0.0,
            "kl": kl / max(count, 1),
            "top1": agree / max(count, 1),
        }
