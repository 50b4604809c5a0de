"""TPOT: time per output token, and what it is made of."""

from __future__ import annotations

from typing import ClassVar

from textual.content import Content

from app.formatting import figures
from app.ui.widgets.charts import Part, columns, divided_bar, key_of
from app.ui.widgets.panel import Panel, heading, pairs, wrapped
from engine.events import Snapshot, Timing

_PARTS = (
    Part("compute", "$secondary", "█"),
    Part("load", "$accent", "▒"),
    Part("overhead", "$quiet", "░"),
)


class TpotPanel(Panel):
    """Speed of the answer being written, or of the last one."""

    TITLE: ClassVar[str] = "TPOT"
    EXPLAINED: ClassVar[tuple[str, ...]] = ("TPOT", "TTFT", "x limit")

    def lines(self, snapshot: Snapshot, width: int) -> list[Content]:
        timing = snapshot.timing
        return [
            self._heading(timing, width),
            *pairs(
                width,
                ("p50", figures.milliseconds(timing.tpot_p50_ms)),
                ("p95", figures.milliseconds(timing.tpot_p95_ms)),
                ("TTFT", figures.milliseconds(timing.ttft_ms)),
            ),
            Content.styled(figures.sparkline(list(timing.recent_tpot_ms), width) or figures.DASH, "$secondary"),
            *wrapped(self._split_key(timing), width, " "),
        ]

    def full_lines(self, snapshot: Snapshot, width: int, height: int) -> list[Content]:
        timing = snapshot.timing
        recent = list(timing.recent_tpot_ms)
        top = max(recent, default=0.0)
        chart = columns(recent, width, max(3, min(16, height - 12)), top, "$secondary") if top else []
        scale = f"the last {len(recent)} tokens, from 0 to {figures.milliseconds(top)}" if recent else figures.DASH
        return [
            self._heading(timing, width),
            Content(""),
            *chart,
            Content.styled(scale, "$quiet"),
            Content(""),
            *pairs(
                width,
                ("now", figures.milliseconds(timing.tpot_now_ms)),
                ("mean", figures.milliseconds(timing.tpot_mean_ms)),
                ("p50", figures.milliseconds(timing.tpot_p50_ms)),
                ("p95", figures.milliseconds(timing.tpot_p95_ms)),
                ("TTFT", figures.milliseconds(timing.ttft_ms)),
                ("x limit", times_the_limit(timing)),
            ),
            Content(""),
            Content.styled("decode time; a load counts where it is waited for", "$quiet"),
            divided_bar(
                [share or 0.0 for share in _shares(timing)], 1.0, width, _PARTS, can_colour=not self.app.no_color
            ),
            *wrapped(self._split_key(timing), width),
        ]

    def _heading(self, timing: Timing, width: int) -> Content:
        mean, speed = f"mean {figures.milliseconds(timing.tpot_mean_ms)}", figures.tok_per_s(timing.tpot_mean_ms)
        limit = f"{times_the_limit(timing)} limit"
        return heading(self.TITLE, (f"{mean} · {speed} · {limit}", f"{mean} · {limit}", mean), width)

    def _split_key(self, timing: Timing) -> list[Content]:
        return [
            key_of(part, figures.whole_percent(share), can_colour=not self.app.no_color)
            for part, share in zip(_PARTS, _shares(timing), strict=True)
        ]


def _shares(timing: Timing) -> tuple[float | None, float | None, float | None]:
    """In the order of `_PARTS`."""
    return timing.compute_rate, timing.link_wait_rate, timing.overhead_rate


def times_the_limit(timing: Timing) -> str:
    """`~1.4×` while it is an estimate, `1.4×` once it is computed; a dash where it is not known."""
    if timing.times_the_limit is None:
        return figures.DASH
    return f"{'~' if timing.is_limit_estimate else ''}{timing.times_the_limit:.1f}×"
