"""How figures are written: short, with their unit, and a dash where there is no data."""

from __future__ import annotations

DASH = "–"

_BARS = "▁▂▃▄▅▆▇█"


def count(number: float) -> str:
    """`11840`, `123.4k`, `1.2M`."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e5, "k")):
        if abs(number) >= size:
            return f"{number / (1e3 if unit == 'k' else size):.1f}{unit}"
    return f"{number:.0f}"


def counted(number: int, noun: str) -> str:
    """`1 turn`, `12 turns`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def tokens(number: int) -> str:
    """A number of tokens, as in `1.9k` or `8k`."""
    return str(number) if number < 1000 else f"{number / 1000:.1f}".removesuffix(".0") + "k"


def whole_percent(share: float | None) -> str:
    """`85 %` of a share in [0, 1], and `<1 %` where rounding would deny it: for lines of a steady width."""
    if share is None:
        return DASH
    return "<1 %" if 0 < share < 0.005 else f"{share * 100:.0f} %"


def percent(part: float | None, whole: float | None = 1.0) -> str:
    """`part` of `whole` in per cent. Not quite all is not called all."""
    if part is None or not whole:
        return DASH
    share = 100 * part / whole
    if 99.5 <= share < 100:
        return f"{min(share, 99.94):.1f} %"
    return f"{share:.0f} %" if share >= 99.95 or share == 0 or share >= 10 else f"{share:.1f} %"


def of(part: float, whole: float) -> str:
    """`812 of 870`, or a dash when there is no whole yet."""
    return f"{count(part)} of {count(whole)}" if whole else DASH


def share(part: float, whole: float) -> str:
    """`93 % (812 of 870)`."""
    return f"{percent(part, whole)} ({of(part, whole)})" if whole else DASH


def milliseconds(duration_ms: float | None) -> str:
    """`214 ms`, `1.9 s`."""
    if duration_ms is None:
        return DASH
    if duration_ms < 1000:
        return f"{duration_ms:.0f} ms" if duration_ms >= 10 else f"{duration_ms:.1f} ms"
    return f"{duration_ms / 1000:.1f} s"


def roughly(duration_s: float) -> str:
    """An estimate: `20 s`, `3 min`, `2 h`."""
    if duration_s < 90:
        return f"{max(5, 5 * round(duration_s / 5))} s"
    return f"{duration_s / 60:.0f} min" if duration_s < 5400 else f"{duration_s / 3600:.0f} h"


def tok_per_s(tpot_ms: float | None) -> str:
    """The speed that goes with a time per output token."""
    return f"{1000 / tpot_ms:.1f} tok/s" if tpot_ms else DASH


def bandwidth(bytes_per_s: float | None) -> str:
    """`1.3 GB/s`, in decimal units as links are sold."""
    if bytes_per_s is None:
        return DASH
    for size, unit in ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")):
        if bytes_per_s >= size:
            return (
                f"{bytes_per_s / size:.1f} {unit}" if bytes_per_s < 100 * size else f"{bytes_per_s / size:.0f} {unit}"
            )
    return f"{bytes_per_s:.0f} B/s"


def bar(done: float, total: float, width: int) -> str:
    """`▰▰▰▱▱▱`: `done` of `total`."""
    filled = round(width * min(1.0, max(0.0, done / total))) if total > 0 else 0
    return "▰" * filled + "▱" * (width - filled)


def sparkline(values: list[float | None], width: int, *, high: float | None = None) -> str:
    """The last `width` values as bars from 0 to `high` (None: the highest of them); a gap is a blank."""
    shown = values[-width:]
    known = [value for value in shown if value is not None]
    if not known:
        return ""
    top = (max(known) if high is None else high) or 1.0
    return "".join(" " if value is None else _BARS[min(7, max(0, int(8 * value / top)))] for value in shown)
