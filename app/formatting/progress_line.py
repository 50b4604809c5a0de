"""Progress as one line of text, for the command line and the app alike."""

from __future__ import annotations

from app.formatting import figures
from app.formatting.pace import Pace
from engine.config import format_bytes
from engine.events import LoadProgress, PrefillProgress, TaskProgress

_BAR_WIDTH = 12


def loading(progress: LoadProgress, pace: Pace | None = None) -> str:
    """`reading weights ▰▰▰▱▱ 120 of 270 MiB · 61.0 MB/s · 5 s left`."""
    rest = _pace(pace, progress.unit)
    if progress.unit == "B":
        amount = f"{format_bytes(progress.done)} of {format_bytes(progress.total)}"
    else:
        amount = f"{figures.count(progress.done)} of {figures.count(progress.total)} {progress.unit}".strip()
    if progress.total <= 0:
        return (f"{progress.stage} …" if progress.done <= 0 else f"{progress.stage} … {amount.split(' of ')[0]}") + rest
    return f"{progress.stage}  {figures.bar(progress.done, progress.total, _BAR_WIDTH)}  {amount}{rest}"


def _pace(pace: Pace | None, unit: str) -> str:
    """The rate, where the unit is bytes, and the time left."""
    if pace is None or pace.per_s is None:
        return ""
    rate = f" · {figures.bandwidth(pace.per_s)}" if unit == "B" else ""
    return rate + (f" · {figures.roughly(pace.left_s)} left" if pace.left_s is not None else "")


def prefill(progress: PrefillProgress, pace: Pace | None = None) -> str:
    """`reading the prompt ▰▰▱ 128 of 512 tok, 64 cached · 5 s left`."""
    reused = f", {progress.reused_tok} cached" if progress.reused_tok else ""
    note = f" ({progress.note})" if progress.note else ""
    bar = figures.bar(progress.done_tok, progress.total_tok, _BAR_WIDTH)
    return (
        f"reading the prompt  {bar}  {progress.done_tok} of {progress.total_tok} tok{reused}{note}{_pace(pace, 'tok')}"
    )


def task(progress: TaskProgress) -> str:
    """`comparing ▰▰▱ 12 of 32`."""
    if progress.total <= 0:
        return f"{progress.stage} …"
    bar = figures.bar(progress.done, progress.total, _BAR_WIDTH)
    return f"{progress.stage}  {bar}  {progress.done} of {progress.total}"
