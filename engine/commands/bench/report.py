"""Rows of the policies bench: what a variant measured, as JSON and as a table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from engine.commands.bench.links import link_label
from engine.commands.bench.workload import Run
from engine.telemetry.turn_clock import percentile
from offload.counters import Counters


@dataclass(frozen=True, slots=True)
class VariantRow:
    """One variant over all tasks."""

    name: str
    tpot_mean_ms: float
    tpot_ms: float
    """Median over all tokens."""
    tpot_p95_ms: float
    ttft_ms: float
    speedup: float
    """Load-on-demand's mean TPOT over this one's: the median of the ratios task by task."""
    speedup_range: tuple[float, float]
    """The smallest and the largest of those ratios."""
    bound_loads_per_tok: float
    """The fewest loads any policy could make with the same bytes from the same initial contents."""
    times_the_limit: float
    """Mean TPOT over the larger of the compute floor and the time those loads take on the link."""
    modelled_speedup: float | None
    """The ratio by `VirtualRun`: without noise, and copies do not slow compute. None where it cannot be modelled."""
    counters: Counters
    link_wait_rate: float
    num_tok: int
    is_exact: bool

    @classmethod
    def of(
        cls,
        name: str,
        runs: Sequence[Run],
        baseline: Sequence[Run],
        bound_loads: int,
        load_ms: float,
        floor_ms: float,
        modelled_speedup: float | None,
    ) -> VariantRow:
        """`bound_loads`: over all runs; `load_ms`: what one takes on the link; `floor_ms`: the compute of a token."""
        times = sorted(time for run in runs for time in run.tpot_ms)
        ratios = [
            statistics.fmean(base.tpot_ms) / statistics.fmean(run.tpot_ms)
            for base, run in zip(baseline, runs, strict=True)
        ]
        bound_loads_per_tok = bound_loads / len(times)
        return cls(
            name=name,
            tpot_mean_ms=statistics.fmean(times),
            tpot_ms=statistics.median(times),
            tpot_p95_ms=percentile(times, 0.95) or 0.0,
            ttft_ms=statistics.median(run.ttft_ms for run in runs),
            speedup=statistics.median(ratios),
            speedup_range=(min(ratios), max(ratios)),
            bound_loads_per_tok=bound_loads_per_tok,
            times_the_limit=statistics.fmean(times) / max(floor_ms, bound_loads_per_tok * load_ms),
            modelled_speedup=modelled_speedup,
            counters=Counters.total(run.counters for run in runs),
            link_wait_rate=sum(run.link_wait_ms for run in runs) / sum(times),
            num_tok=len(times),
            is_exact=all(run.is_exact for run in runs),
        )

    @property
    def loads_per_tok(self) -> float:
        """Copies in decode, demanded and prefetched."""
        return (self.counters.demand_loads + self.counters.prefetch_loads) / max(self.num_tok, 1)

    def as_dict(self) -> dict[str, object]:
        """JSON-serialisable."""
        counters = self.counters
        return {
            "name": self.name,
            "tpot_mean_ms": self.tpot_mean_ms,
            "tpot_p50_ms": self.tpot_ms,
            "tpot_p95_ms": self.tpot_p95_ms,
            "ttft_ms": self.ttft_ms,
            "speedup_over_load_on_demand": self.speedup,
            "speedup_range": list(self.speedup_range),
            "modelled_speedup": self.modelled_speedup,
            "loads_per_tok": self.loads_per_tok,
            "bound_loads_per_tok": self.bound_loads_per_tok,
            "times_the_limit": self.times_the_limit,
            "link_wait_rate": self.link_wait_rate,
            "is_exact": self.is_exact,
            "num_tok": self.num_tok,
            "bytes_per_tok": counters.bytes_loaded / max(self.num_tok, 1),
            "counters": {name: getattr(counters, name) for name in Counters.__slots__},
        }


def rows_as_lines(link: str, rate: float | None, rows: Sequence[VariantRow]) -> list[str]:
    """A table of one link's variants."""
    lines = [
        link_label(link, rate),
        f"  {'variant':<19}{'TPOT':>7}{'p50':>7}{'p95':>7}{'TTFT':>7}{'speedup':>9}{'(least-most)':>14}"
        f"{'modelled':>10}{'x limit':>9}{'hits':>7}{'loads/tok':>11}{'bound':>7}{'useful':>8}{'waits':>7}  tokens",
    ]
    return lines + [_line(row) for row in rows]


def _line(row: VariantRow) -> str:
    counters = row.counters
    issued = counters.prefetch_issued
    useful = f"{counters.prefetch_useful / issued:.0%}" if issued else "–"
    hits = f"{counters.hit_rate:.1%}" if counters.hit_rate is not None else "–"
    modelled = f"{row.modelled_speedup:.2f}x" if row.modelled_speedup is not None else "–"
    spread = "({:.2f}-{:.2f})".format(*row.speedup_range)
    return (
        f"  {row.name:<19}{row.tpot_mean_ms:7.1f}{row.tpot_ms:7.1f}{row.tpot_p95_ms:7.1f}{row.ttft_ms:7.0f}"
        f"{row.speedup:8.2f}x{spread:>14}{modelled:>10}{row.times_the_limit:8.2f}x{hits:>7}{row.loads_per_tok:11.1f}"
        f"{row.bound_loads_per_tok:7.1f}{useful:>8}{row.link_wait_rate:7.0%}  "
        + ("equal" if row.is_exact else "differ")
    )
