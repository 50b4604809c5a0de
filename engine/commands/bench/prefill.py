"""`bench prefill`: the three prefill paths by prompt length: whole layers staged, selected experts, or one at a time.

After "MoE-CORE: Coordinated Expert Offload", section "Mechanism": full-layer staging should be faster from floor(K_l /
k_l) tokens on. Every run starts with the same full decode slots, which prefill must not change; paths and lengths are
interleaved.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from time import perf_counter

from engine.backends.offloaded_model import OffloadedModel
from engine.commands.bench.links import check_fixed_links, fixed_rate, link_label
from engine.commands.bench.workload import (
    engine_for_bench,
    first_experts,
    layer_time_s,
    make_tasks,
    share_of_experts,
    warm_up,
)
from engine.commands.task_outcome import OnTaskProgress, TaskOutcome
from engine.config import FULL_LAYER, RING, EngineConfig
from engine.experts.prefill import LayerPrefill
from engine.profiles.prompt_sets import shipped_domains
from offload.slot_groups import SlotGroups

_RESIDENCY = 0.5
_WHOLE, _SELECTIVE, _PIPELINE = "full layers", "selective", "one at a time"
_NEVER = 1 << 30
_LENGTHS = (16, 64, 256)


@dataclass(frozen=True, slots=True)
class _Run:
    prefill_ms: float
    bytes_loaded: int
    is_set_kept: bool
    """Prefill left the decode slots as they were."""
    first_token: int


def bench_prefill(
    engine: OffloadedModel,
    is_quick: bool,
    links: Sequence[str],
    on_progress: OnTaskProgress,
    is_cancelled: Callable[[], bool],
) -> TaskOutcome:
    """Runs with half of the experts resident, outside the budget, and restores the engine afterwards. Raises
    ConfigError, WaitCancelled."""
    check_fixed_links(links, "Link B is calibrated on decode.")
    with engine_for_bench(engine, is_cancelled) as base:
        return _Bench(engine, base, 2 if is_quick else 5, on_progress).run(links)


class _Bench:
    def __init__(
        self,
        engine: OffloadedModel,
        base: EngineConfig,
        num_rounds: int,
        on_progress: OnTaskProgress,
    ) -> None:
        self._engine, self._base, self._num_rounds, self._on_progress = engine, base, num_rounds, on_progress
        self._slots = share_of_experts(engine, _RESIDENCY)
        shapes = engine.loaded.plan.geometry.layers
        switches = [slots // shape.top_k for slots, shape in zip(self._slots, shapes, strict=True)]
        self._switch_tok = min(switches)
        around = (1, self._switch_tok - 1, self._switch_tok, 2 * self._switch_tok)
        longest = min(engine.budget.chunk_tok, engine.budget.context_tok - 1)
        self._lengths = sorted({length for length in (*around, *_LENGTHS) if 1 <= length <= longest})

    def run(self, links: Sequence[str]) -> TaskOutcome:
        engine = self._engine
        self._on_progress("calibrating", 0, 1)
        (task,) = make_tasks(engine, self._base, 8, 1, shipped_domains()[:1])
        layer_s = layer_time_s(engine, task)
        ids = task.prompt * (max(self._lengths) // len(task.prompt) + 1)
        report: dict[str, object] = {"switch_tok": self._switch_tok, "slots": list(self._slots)}
        lines = [
            f"prefill by prompt length, {self._slots[0]} slots a layer, {self._num_rounds} rounds; whole layers are "
            f"staged from {self._switch_tok} tokens on by floor(slots / k)",
        ]
        is_ok = True
        for link in links:
            rate = fixed_rate(link, engine, layer_s)
            runs = self._measure(link, rate, ids)
            is_ok &= all(run.is_set_kept for many in runs.values() for run in many) and self._is_equal(runs)
            report[f"link {link}"] = {"bytes_per_s": rate, "rows": self._as_dicts(runs)}
            lines += ["", link_label(link, rate), *self._as_lines(runs)]
        return TaskOutcome(is_ok, {**report, "is_exact": is_ok}, tuple(lines))

    def _measure(self, link: str, rate: float | None, ids: list[int]) -> dict[tuple[int, str], list[_Run]]:
        kinds = list(product(self._lengths, (_WHOLE, _SELECTIVE, _PIPELINE)))
        runs = {kind: list[_Run]() for kind in kinds}
        for number in range(self._num_rounds):
            self._on_progress(f"link {link}", number, self._num_rounds)
            for length, path in kinds if number % 2 == 0 else reversed(kinds):
                runs[length, path].append(self._run(path, rate, ids[:length]))
        return runs

    def _run(self, path: str, rate: float | None, prompt: list[int]) -> _Run:
        engine = self._engine
        engine.rebuild(self._config(path, rate), SlotGroups.per_layer(self._slots))
        if isinstance(engine.prefill, LayerPrefill):
            engine.prefill.switch_tok = [1 if path == _WHOLE else _NEVER] * len(engine.layers)
        warm_up(engine, first_experts(self._slots))
        before, counters = engine.cache.residents(), engine.cache.total_counters()
        start = perf_counter()
        logits = engine.decoder.prefill(prompt, lambda done_tok: None)
        elapsed_ms = (perf_counter() - start) * 1000
        loaded = engine.cache.total_counters() - counters
        engine.cache.check_integrity()
        return _Run(elapsed_ms, loaded.bytes_loaded, engine.cache.residents() == before, int(logits.argmax()))

    def _config(self, path: str, rate: float | None) -> EngineConfig:
        return replace(self._base, prefill=RING if path == _PIPELINE else FULL_LAYER, link_bytes_per_s=rate)

    def _is_equal(self, runs: dict[tuple[int, str], list[_Run]]) -> bool:
        """Every path gives the same first token."""
        return all(
            len({run.first_token for (tok, _), many in runs.items() if tok == length for run in many}) == 1
            for length in self._lengths
        )

    def _as_dicts(self, runs: dict[tuple[int, str], list[_Run]]) -> list[dict[str, object]]:
        return [
            {
                "prompt_tok": length,
                "path": path,
                "prefill_ms": statistics.median(run.prefill_ms for run in many),
                "prefill_ms_range": [min(run.prefill_ms for run in many), max(run.prefill_ms for run in many)],
                "bytes_loaded": many[-1].bytes_loaded,
            }
            for (length, path), many in runs.items()
        ]

    def _as_lines(self, runs: dict[tuple[int, str], list[_Run]]) -> list[str]:
        lines = [f"  {'tokens':>7}" + "".join(f"{path:>28}" for path in (_WHOLE, _SELECTIVE, _PIPELINE)) + "  fastest"]
        for length in self._lengths:
            medians = {
                path: statistics.median(run.prefill_ms for run in runs[length, path])
                for path in (_WHOLE, _SELECTIVE, _PIPELINE)
            }
            cells = "".join(
                f"{f'{median:.0f} ms, {runs[length, path][-1].bytes_loaded / 2**20:.0f} MiB':>28}"
                for path, median in medians.items()
            )
            lines.append(f"  {length:7d}{cells}  {min(medians, key=lambda path: medians[path])}")
        return lines
