"""The figures of all runs: medians by limit and side, ratios to this engine, as a table and as JSON values."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from engine.commands.bench.peers.run import PeerRun
from engine.config import format_bytes

OURS = "moe-chat"


@dataclass(frozen=True, slots=True)
class Measured:
    """One run, and under which limit and of which side."""

    limit_bytes: int | None
    side: str
    run: PeerRun


@dataclass(frozen=True, slots=True)
class Row:
    """All runs of one side under one limit."""

    limit_bytes: int | None
    side: str
    runs: tuple[PeerRun, ...]

    def median(self, figure: Callable[[PeerRun], float | None]) -> float | None:
        """Over the runs that have the figure; None: no run has."""
        values = [value for run in self.runs if (value := figure(run)) is not None]
        return statistics.median(values) if values else None

    @property
    def problem(self) -> str:
        """How the runs ended that did not end well."""
        return "; ".join(sorted({run.outcome for run in self.runs if not run.is_done}))

    def as_dict(self) -> dict[str, object]:
        """For JSON: medians, and every run."""
        return {
            "limit_bytes": self.limit_bytes,
            "side": self.side,
            "load_ms": self.median(lambda run: run.load_ms),
            "ttft_ms": self.median(lambda run: run.ttft_ms),
            "tpot_ms": self.median(lambda run: run.tpot_ms),
            "peak_bytes": self.median(lambda run: run.peak_bytes),
            "problem": self.problem,
            "runs": [asdict(run) for run in self.runs],
        }


def rows_of(measured: Sequence[Measured]) -> list[Row]:
    """In the order of their first runs."""
    keys = list(dict.fromkeys((one.limit_bytes, one.side) for one in measured))
    return [Row(*key, tuple(one.run for one in measured if (one.limit_bytes, one.side) == key)) for key in keys]


def ratios(rows: Sequence[Row]) -> list[dict[str, object]]:
    """Of every other side to this engine under the same limit: above 1, the other takes longer."""
    ours = {row.limit_bytes: row for row in rows if row.side == OURS}
    found: list[dict[str, object]] = []
    for row in rows:
        if row.side == OURS or row.limit_bytes not in ours:
            continue
        own = ours[row.limit_bytes]
        found.append(
            {
                "limit_bytes": row.limit_bytes,
                "side": row.side,
                "tpot": _ratio(row, own, lambda run: run.tpot_ms),
                "ttft": _ratio(row, own, lambda run: run.ttft_ms),
                "is_same_text": is_same_text(row.runs, own.runs),
            }
        )
    return found


def _ratio(row: Row, own: Row, figure: Callable[[PeerRun], float | None]) -> float | None:
    theirs, ours = row.median(figure), own.median(figure)
    return theirs / ours if theirs and ours else None


def is_same_text(theirs: Sequence[PeerRun], ours: Sequence[PeerRun]) -> bool | None:
    """Whether both wrote the same text, as far as both wrote; None where one wrote none. Bytes that are no character
    are left out: sides show them differently."""
    texts = [next((run.text.replace("\ufffd", "") for run in runs if run.text), "") for runs in (theirs, ours)]
    length = min(map(len, texts))
    return texts[0][:length] == texts[1][:length] if length else None


def lines_of_table(rows: Sequence[Row]) -> list[str]:
    """For a person."""
    lines = [f"{'limit':<9} {'side':<19} {'load':>9} {'TTFT':>10} {'TPOT':>10} {'peak':>9}"]
    for row in rows:
        limit = format_bytes(row.limit_bytes) if row.limit_bytes is not None else "none"
        peak = row.median(lambda run: run.peak_bytes)
        lines.append(
            f"{limit:<9} {row.side:<19} {_seconds(row.median(lambda run: run.load_ms)):>9} "
            f"{_seconds(row.median(lambda run: run.ttft_ms)):>10} {_ms(row.median(lambda run: run.tpot_ms)):>10} "
            f"{format_bytes(peak) if peak else '-':>9}  {row.problem}".rstrip()
        )
    for found in ratios(rows):
        limit_bytes = found["limit_bytes"]
        limit = format_bytes(limit_bytes) if isinstance(limit_bytes, int) else "no limit"
        same = {True: "the same text", False: "another text", None: "no text to compare"}[found["is_same_text"]]  # type: ignore[index]
        lines.append(
            f"{found['side']} over {OURS}, {limit}: TPOT {_times(found['tpot'])}, TTFT {_times(found['ttft'])}; {same}"
        )
    return lines


def run_in_words(run: PeerRun) -> str:
    """One run's figures in a few words."""
    if not run.is_done:
        return f"{run.outcome}, after {run.wall_s:.0f} s"
    return f"TTFT {_seconds(run.ttft_ms)}, TPOT {_ms(run.tpot_ms)}, {run.wall_s:.0f} s in all"


def _seconds(milliseconds: float | None) -> str:
    return "-" if milliseconds is None else f"{milliseconds / 1e3:.2f} s"


def _ms(milliseconds: float | None) -> str:
    return "-" if milliseconds is None else f"{milliseconds:.1f} ms"


def _times(value: object) -> str:
    return f"{value:.2f}x" if isinstance(value, float) else "-"
