"""The panels folded into one line, for narrow terminals."""

from __future__ import annotations

from textual.content import Content

from app.formatting import figures
from app.ui.widgets.memory_bar import in_unit, unit_of
from app.ui.widgets.panel import Panel
from app.ui.widgets.tpot_panel import times_the_limit
from engine.config import APPROX
from engine.events import HOST, Snapshot

_SPARK_WIDTH = 6


class StatusLine(Panel, can_focus=False):
    """TPOT, hits, substitutions, residency, memory and more; whatever does not fit is left out from the right."""

    def blank_lines(self, width: int) -> list[Content]:
        return [Content.styled("no figures yet", "$quiet")]

    def lines(self, snapshot: Snapshot, width: int) -> list[Content]:
        line = Content("")
        for item in self._items(snapshot):
            longer = Content.assemble(line, "  ", item) if line.cell_length else item
            if longer.cell_length > width:
                break
            line = longer
        return [line]

    def _items(self, snapshot: Snapshot) -> list[Content]:
        counters, timing, memory, link = snapshot.turn_counters, snapshot.timing, snapshot.memory, snapshot.link
        num_experts = sum(map(len, snapshot.residency))
        on_device = num_experts - sum(codes.count(HOST) for codes in snapshot.residency)
        aes_colour = "$approx" if snapshot.mode == APPROX or counters.substituted else "$foreground"
        aes = figures.count(counters.substituted) if counters.routed else figures.DASH
        aes += " in APPROX" if counters.substituted and snapshot.mode != APPROX else ""
        emulated = " emulated" if link.emulated_bytes_per_s is not None else ""
        return [
            _item("TPOT", _speed(figures.milliseconds(timing.tpot_now_ms), list(timing.recent_tpot_ms))),
            _item("hit", Content(_share(counters.hits, counters.routed))),
            _item("AES", Content.styled(aes, aes_colour)),
            _item("res", Content(_share(on_device, num_experts))),
            _item("mem", Content(_memory(memory.rss_bytes, memory.budget_bytes))),
            _item("link", Content(figures.bandwidth(link.bytes_per_s) + emulated)),
            _item("late", Content(figures.percent(counters.late, counters.routed))),
            _item("load", Content(figures.percent(timing.link_wait_rate))),
            _item("limit", Content(times_the_limit(timing))),
            _item("p95", Content(figures.milliseconds(timing.tpot_p95_ms))),
        ]


def _item(name: str, value: Content) -> Content:
    return Content.assemble((f"{name} ", "$quiet"), value)


def _speed(now: str, recent: list[float | None]) -> Content:
    spark = figures.sparkline(recent, _SPARK_WIDTH)
    return Content.assemble(now, " " if spark else "", (spark, "$secondary"))


def _share(part: int, whole: int) -> str:
    return f"{figures.percent(part, whole)} of {figures.count(whole)}".replace(" %", "%") if whole else figures.DASH


def _memory(held: int, budget: int) -> str:
    """Both in the budget's unit, which is written once."""
    if not budget:
        return figures.DASH
    unit = unit_of(budget)
    return f"{in_unit(held, unit)}/{in_unit(budget, unit)} {unit}"
