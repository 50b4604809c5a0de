"""What an answer cost: as JSON to keep, and as one line for a person. Every count comes with its whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import Any, TypeVar

from app.formatting import figures
from engine.config import format_bytes
from engine.events import CANCELLED, CONTEXT_FULL, LABEL_APPROX, LENGTH, Counters, TurnStats

_Told = TypeVar("_Told")

_REASONS = {CANCELLED: "stopped", LENGTH: "cut at the token limit", CONTEXT_FULL: "cut: the context is full"}


def ending(reason: str) -> str:
    """How an answer ended, for a person."""
    return _REASONS.get(reason, "complete")


def as_json(
    stats: TurnStats, reason: str, *, domain: str = "", model: str = "", top_k: int | None = None
) -> dict[str, object]:
    """Everything that was counted, why the answer ended, and in which domain and by which model it was given."""
    return {"reason": reason, "domain": domain, "model": model, "top_k": top_k, **asdict(stats)}


def kept_summary(kept: Mapping[str, Any] | None) -> str:
    """The line below an answer that was kept; empty where there is no record of it, or one of a shape unknown here."""
    return _told(summary, kept) or ""


def kept_summaries(kept: Mapping[str, Any] | None) -> list[str]:
    """The lines below an answer that was kept: one for each time it was written, numbered where there are more."""
    lines: list[str] = []
    while isinstance(kept, Mapping):
        lines.insert(0, kept_summary(kept))
        kept = kept.get("before")
    return [f"part {number} of {len(lines)}: {line}" for number, line in enumerate(lines, 1)] if lines[1:] else lines


def kept_lines(kept: Mapping[str, Any] | None) -> list[str]:
    """The long form for an answer that was kept; none where there is no record of it."""
    return _told(stats_lines, kept) or []


def _told(tell: Callable[[TurnStats, str, int | None], _Told], kept: Mapping[str, Any] | None) -> _Told | None:
    if kept is None:
        return None
    try:
        counted = {field.name: kept["counters"].get(field.name, 0) for field in fields(Counters)}
        known = {field.name: kept[field.name] for field in fields(TurnStats) if field.name in kept}
        stats = TurnStats(**{**known, "counters": Counters(**counted)})
        return tell(stats, str(kept.get("reason", "")), kept.get("top_k"))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def label_text(stats: TurnStats, top_k: int | None) -> str:
    """`exact`, or what is approximate about the answer."""
    counters = stats.counters
    if stats.label != LABEL_APPROX:
        return stats.label
    text = f"approximate: {figures.of(counters.substituted, counters.routed)} substituted"
    if top_k and counters.routed:
        text += f" ({figures.percent(counters.substituted_mass * top_k, counters.routed)} of the routing weight)"
    return text


def summary(stats: TurnStats, reason: str, top_k: int | None) -> str:
    """The line below an answer."""
    counters = stats.counters
    parts = [_REASONS[reason]] if reason in _REASONS else []
    parts += [
        f"{stats.new_tok} tok" + (f" ({stats.thinking_tok} thinking)" if stats.thinking_tok else ""),
        f"TTFT {figures.milliseconds(stats.ttft_ms)}",
        f"{figures.milliseconds(stats.tpot_ms)}/tok",
        figures.tok_per_s(stats.tpot_ms),
        f"hit {figures.share(counters.hits, counters.routed)}",
        label_text(stats, top_k),
    ]
    return " · ".join(parts)


def _experts(stats: TurnStats) -> tuple[str, ...]:
    counters, routed = stats.counters, stats.counters.routed
    return (
        f"{figures.count(routed)} routed",
        f"{figures.share(counters.resident_hits, routed)} resident hits",
        f"{figures.share(counters.prefetched_hits, routed)} prefetched hits",
        f"{figures.share(counters.late, routed)} late",
        f"{figures.share(counters.misses, routed)} misses"
        f" ({counters.cold_misses} cold, {counters.capacity_misses} capacity)",
        f"{figures.share(counters.substituted, routed)} substituted",
    )


def _link_wait_ms(stats: TurnStats) -> float | None:
    """None without a second token, for which older records have 0."""
    return None if stats.tpot_ms is None else stats.link_wait_ms


def stats_lines(stats: TurnStats, reason: str, top_k: int | None) -> list[str]:
    """The long form, one aspect a line, for `ask --stats`."""
    counters = stats.counters
    prefetch = (
        f"{figures.share(counters.prefetch_useful, counters.prefetch_issued)} useful of those issued",
        f"{counters.prefetch_late} late",
        f"{counters.prefetch_wasted} wasted",
        f"{counters.prefetch_cancelled} cancelled",
        f"{max(counters.prefetch_in_flight, 0)} open",  # one issued in an earlier answer may be judged in this one
    )
    thinking = f"{stats.thinking_tok} of them thinking ({figures.milliseconds(stats.thinking_ms)})"
    left_out = f"the oldest {stats.left_out_messages} messages left out"
    lines = {
        "answer": (
            f"{stats.new_tok} tok",
            thinking if stats.thinking_tok else "",
            ending(reason),
            label_text(stats, top_k) + (f" (on {stats.runs_on})" if stats.runs_on else ""),
        ),
        "prompt": (
            f"{stats.prompt_tok} tok",
            f"{stats.reused_tok} of them cached",
            left_out if stats.left_out_messages else "",
            f"{format_bytes(stats.prefill_bytes)} copied",
            stats.prefill_path,
        ),
        "speed": (
            f"TTFT {figures.milliseconds(stats.ttft_ms)}",
            f"TPOT {figures.milliseconds(stats.tpot_ms)}"
            f" (p50 {figures.milliseconds(stats.tpot_p50_ms)}, p95 {figures.milliseconds(stats.tpot_p95_ms)})",
            figures.tok_per_s(stats.tpot_ms),
            f"{stats.times_the_limit:.1f}x the limit" if stats.times_the_limit else "",
        ),
        "experts": _experts(stats),
        "prefetch": prefetch,
        "link": (
            f"{format_bytes(stats.decode_bytes)} moved in decode",
            f"{figures.milliseconds(_link_wait_ms(stats))} waited for it",
            stats.link,
        ),
    }
    return [f"{name:<10}{', '.join(part for part in parts if part)}" for name, parts in lines.items()]
