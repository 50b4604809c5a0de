"""Rows of the policies bench: what a variant measured, as JSON and as a table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from engine.bench.workload import Run
from offload.counters import Counters


@dataclass(frozen=True, slots=True)
class VariantRow:
    """One variant over all tasks."""

    name: str
    tpot_ms: float
    """Median over all tokens."""
    tpot_p95_ms: float
    ttft_ms: float
    speedup: float
    """Load-on-demand's mean TPOT over this one's: the median of the ratios task by task."""
    times_the_limit: float
    counters: Counters
    link_wait_rate: float
    num_tok: int
    is_exact: bool

    @classmethod
    def of(cls, name: str, runs: Sequence[Run], limit_ms: float, baseline: Sequence[Run]) -> VariantRow:
        """`limit_ms`: the least a token can take."""
        times = sorted(time for run in runs for time in run.tpot_ms)
        ratios = [
            statistics.fmean(base.tpot_ms) / statistics.fmean(run.tpot_ms)
            for base, run in zip(baseline, runs, strict=True)
        ]
        median = statistics.median(times)
        return cls(
            name=name,
            tpot_ms=median,
            tpot_p95_ms=times[min(int(0.95 * len(times)), len(times) - 1)],
            ttft_ms=statistics.median(run.ttft_ms for run in runs),
            speedup=statistics.median(ratios),
            times_the_limit=median / limit_ms,
            counters=Counters.total(run.counters for run in runs),
            link_wait_rate=sum(run.link_wait_ms for run in runs) / sum(times),
            num_tok=len(times),
            is_exact=all(run.is_exact for run in runs),
        )

    def as_dict(self) -> dict[str, object]:
        """JSON-serialisable."""
        counters = self.counters
        return {
            "name": self.name,
            "tpot_ms": self.tpot_ms,
            "tpot_p95_ms": self.tpot_p95_ms,
            "ttft_ms": self.ttft_ms,
            "speedup_over_load_on_demand": self.speedup,
            "times_the_limit": self.times_the_limit,
            "link_wait_rate": self.link_wait_rate,
            "is_exact": self.is_exact,
            "num_tok": self.num_tok,
            "bytes_per_tok": counters.bytes_loaded / max(self.num_tok, 1),
            "counters": {name: getattr(counters, name) for name in Counters.__slots__},
        }


def rows_as_lines(link: str, rate: float | None, rows: Sequence[VariantRow]) -> list[str]:
    """A table of one link's variants."""
    label = f"link {link}, emulated {rate / 1e9:.2f} GB/s" if rate else "the machine's own link"
    lines = [
        label,
        f"  {'variant':<16}{'TPOT':>8}{'p95':>8}{'TTFT':>8}{'speedup':>9}{'x limit':>9}{'hits':>7}{'loads/tok':>11}"
        f"{'useful':>8}{'waits':>7}  tokens",
    ]
    for row in rows:
        counters = row.counters
        loads = (counters.demand_loads + counters.prefetch_loads) / max(row.num_tok, 1)
        issued = counters.prefetch_issued
        useful = f"{counters.prefetch_useful / issued:.0%}" if issued else "–"
        hits = f"{counters.hit_rate:.1%}" if counters.hit_rate is not None else "–"
        lines.append(
            f"  {row.name:<16}{row.tpot_ms:8.1f}{row.tpot_p95_ms:8.1f}{row.ttft_ms:8.0f}{row.speedup:8.2f}x"
            f"{row.times_the_limit:8.2f}x{hits:>7}{loads:11.1f}{useful:>8}{row.link_wait_rate:7.0%}  "
            + ("equal" if row.is_exact else "differ")
        )
    return lines
