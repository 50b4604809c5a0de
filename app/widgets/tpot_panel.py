"""TPOT: time per output token, and what of it is waiting for the link."""

from __future__ import annotations

from textual.content import Content

from app import figures
from app.widgets.panel import Panel, heading, pairs
from engine.events import Snapshot


class TpotPanel(Panel):
    """Speed of the answer being written, or of the last one."""

    def lines(self, snapshot: Snapshot, width: int) -> list[Content]:
        timing = snapshot.timing
        wait = Content.assemble(
            (figures.percent(timing.link_wait_rate), "$accent"), (" of decode waits for the link", "$quiet")
        )
        spark = figures.sparkline(list(timing.recent_tpot_ms), max(0, width - wait.cell_length - 2))
        return [
            heading(
                "TPOT", f"{figures.milliseconds(timing.tpot_now_ms)}  {figures.tok_per_s(timing.tpot_mean_ms)}", width
            ),
            pairs(
                ("p50", figures.milliseconds(timing.tpot_p50_ms)),
                ("p95", figures.milliseconds(timing.tpot_p95_ms)),
                ("TTFT", figures.milliseconds(timing.ttft_ms)),
            ),
            Content.assemble((spark, "$secondary"), "  " if spark else "", wait),
        ]
