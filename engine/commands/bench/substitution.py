"""`bench policies`, substitution: availability and distance from the exact logits, by alpha."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.backends.offloaded_model import OffloadedModel
from engine.commands.bench.kl import float32_of, kl, log_softmax
from engine.commands.bench.workload import Task, share_of_experts
from engine.commands.task_outcome import OnTaskProgress
from engine.config import APPROX, EngineConfig
from offload.counters import Counters
from offload.slot_groups import SlotGroups

ALPHAS = (0.0, 0.02, 0.05, 0.1, 0.2)
QUICK_ALPHAS = (0.0, 0.05, 0.2)
_SHARES = (0.5, 0.25)


@dataclass(frozen=True, slots=True)
class Distance:
    """One alpha at one share of the experts, over all tasks. None where nothing was routed."""

    share: float
    alpha: float
    availability: float | None
    """Hits + substituted of routed."""
    substituted: float | None
    kl: float
    """Mean over tokens of KL(exact || approximate), in nats."""
    kl_error: float
    """Standard error of that mean, over tasks."""
    top1: float
    """Share of tokens whose likeliest next token is the same."""
    num_tok: int

    def as_line(self) -> str:
        """A row for a person."""
        available = f"{self.availability:.2%}" if self.availability is not None else "–"
        substituted = f"{self.substituted:.2%}" if self.substituted is not None else "–"
        return (
            f"  {self.share:4.0%} resident  alpha {self.alpha:<5g}  availability {available:>7}   "
            f"KL {self.kl:.4f} ± {self.kl_error:.4f}   top-1 {self.top1:.1%} of {self.num_tok}   "
            f"substituted {substituted}"
        )


def sweep_alpha(
    engine: OffloadedModel,
    base: EngineConfig,
    tasks: Sequence[Task],
    alphas: Sequence[float],
    on_progress: OnTaskProgress,
) -> list[Distance]:
    """Measures every alpha with half and a quarter of the experts resident, on the tokens of the exact answers.

    Rebuilds the engine and leaves it so. Raises WaitCancelled.
    """
    rows: list[Distance] = []
    for share in _SHARES:
        slots = share_of_experts(engine, share)
        for alpha in alphas:
            on_progress("substitution", len(rows), len(_SHARES) * len(alphas))
            config = replace(base, mode=APPROX, alpha=alpha, prefetch="none")
            rows.append(_distance(engine, config, slots, share, tasks))
    return rows


def _distance(
    engine: OffloadedModel, config: EngineConfig, slots: Sequence[int], share: float, tasks: Sequence[Task]
) -> Distance:
    divergences: list[list[float]] = []
    num_agreeing, total = 0, Counters()
    for task in tasks:
        engine.rebuild(config, SlotGroups.per_layer(slots))
        engine.set_mode(APPROX)
        engine.decoder.prefill(task.prompt, lambda done_tok: None)
        before = engine.cache.total_counters()
        divergences.append([])
        for exact, approx in zip(task.logits[1:], engine.decoder.force(task.answer[:-1]), strict=True):
            divergences[-1].append(kl(log_softmax(float32_of(exact)), log_softmax(float32_of(approx))))
            num_agreeing += int(exact.argmax() == approx.argmax())
        total = Counters.total((total, engine.cache.total_counters() - before))
    means = [statistics.fmean(values) for values in divergences if values]
    num_tok = sum(map(len, divergences))
    return Distance(
        share=share,
        alpha=config.alpha,
        availability=total.availability_rate,
        substituted=total.substituted_rate,
        kl=statistics.fmean(means) if means else 0.0,
        kl_error=statistics.stdev(means) / len(means) ** 0.5 if len(means) > 1 else 0.0,
        top1=num_agreeing / max(num_tok, 1),
        num_tok=num_tok,
    )
