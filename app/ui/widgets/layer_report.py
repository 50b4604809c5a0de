"""All that is known of one MoE layer."""

from __future__ import annotations

from itertools import zip_longest
from typing import ClassVar

from textual.content import Content

from app.formatting import figures
from app.telemetry.expert_use import LayerUse, experts_in_use
from app.telemetry.panel_history import PanelHistory
from app.ui.widgets.panel import Panel, heading, outcomes, pairs, shares, table, wrapped
from app.ui.widgets.residency_map import GLYPHS
from app.ui.widgets.residency_panel import COLOURS, legend
from engine.config import format_bytes
from engine.events import HOST, LOADING, Snapshot

_SHOWN_PICKS = 12


class LayerReport(Panel):
    """Its experts, its slots, how it was served since load, and how often each expert was seen in use."""

    TITLE: ClassVar[str] = "LAYER"
    EXPLAINED: ClassVar[tuple[str, ...]] = ("hot", "late")

    def __init__(self, number: int, history: PanelHistory) -> None:
        """`number` counts MoE layers from 0."""
        super().__init__("layer", history, is_maximised=True)
        self.number = number

    def full_lines(self, snapshot: Snapshot, width: int, height: int) -> list[Content]:
        if self.number >= min(len(snapshot.residency), len(self.history.use.layers)):
            return self.blank_lines(width)
        use = self.history.use.layers[self.number]
        codes = use.mark_hot(snapshot.residency[self.number])
        return [
            self._heading(snapshot, width),
            *self._experts(codes, width),
            *wrapped(legend(), width, " "),
            Content(""),
            *self._state(snapshot, codes, width),
            self._hit_rate(snapshot, width),
            Content(""),
            *_beside(self._served(snapshot), self._moved(snapshot), width),
            Content(""),
            *self._picks(use, width),
            *self._uses(use, codes, width),
        ]

    def _heading(self, snapshot: Snapshot, width: int) -> Content:
        place = f"MoE layer {self.number + 1} of {len(snapshot.residency)}"
        return heading(f"LAYER {snapshot.layer_numbers[self.number]}", place, width)

    def _experts(self, codes: bytes, width: int) -> list[Content]:
        """A glyph for each expert, in rows that begin with the number of their first."""
        per_row = next(size for size in (64, 32, 16, 8) if 6 + 2 * size <= width or size == 8)
        rows = []
        for first in range(0, len(codes), per_row):
            row = codes[first : first + per_row]
            rows.append(
                Content.assemble((f"{'e' + str(first):<6}", "$quiet"), *((f"{GLYPHS[c]} ", COLOURS[c]) for c in row))
            )
        return rows

    def _state(self, snapshot: Snapshot, codes: bytes, width: int) -> list[Content]:
        return pairs(
            width,
            ("on the device", figures.share(len(codes) - codes.count(HOST), len(codes))),
            ("loading", figures.of(codes.count(LOADING), len(codes))),
            ("slots", self._slots(snapshot)),
            ("in use", _named(experts_in_use(codes)) or figures.DASH),
        )

    def _slots(self, snapshot: Snapshot) -> str:
        if snapshot.num_pool_slots:
            return f"of a pool of {figures.count(snapshot.num_pool_slots)}"
        return figures.count(snapshot.slots_per_layer[self.number])

    def _hit_rate(self, snapshot: Snapshot, width: int) -> Content:
        counters = snapshot.layer_counters[self.number]
        told = Content.assemble(("hit rate ", "$quiet"), figures.share(counters.hits, counters.routed), "  ")
        room = max(0, width - told.cell_length)
        spark = figures.sparkline(self.history.layer_hit_rates(self.number), room, high=1.0)
        return Content.assemble(told, (spark, "$exact"))

    def _served(self, snapshot: Snapshot) -> list[Content]:
        counters = snapshot.layer_counters[self.number]
        return shares("routed to since the model was loaded", outcomes(counters), counters.routed)

    def _moved(self, snapshot: Snapshot) -> list[Content]:
        counters = snapshot.layer_counters[self.number]
        useful = figures.of(counters.prefetch_useful, counters.prefetch_issued)
        wasted = figures.of(counters.prefetch_wasted, counters.prefetch_issued)
        rows = [
            ("loads on demand", figures.of(counters.demand_loads, counters.loads)),
            ("loads ahead of need", figures.of(counters.prefetch_loads, counters.loads)),
            ("loads for prompts, warming", figures.of(counters.prefill_loads, counters.loads)),
            ("bytes loaded", format_bytes(counters.bytes_loaded) if counters.loads else figures.DASH),
            ("evictions", figures.count(counters.evictions)),
            ("useful of prefetches issued", useful),
            ("wasted of prefetches issued", wasted),
        ]
        return [Content.styled("loads since the model was loaded", "bold $quiet"), *table(rows)]

    def _picks(self, use: LayerUse, width: int) -> list[Content]:
        picks = [Content(_named(picked)) for picked in reversed(use.recent)][:_SHOWN_PICKS]
        title = Content.styled("in use in the last samples, the newest first", "bold $quiet")
        return [title, *(wrapped(picks, width, " · ") or [Content.styled(figures.DASH, "$quiet")]), Content("")]

    def _uses(self, use: LayerUse, codes: bytes, width: int) -> list[Content]:
        """The experts by how often they were in use, the most used first."""
        title = f"seen in use, in how many of {use.num_samples} samples"
        lines = [Content.styled(title if use.num_samples else f"{title}: {figures.DASH}", "bold $quiet")]
        top = max(use.counts, default=0)
        for expert in sorted(range(len(codes)), key=lambda expert: -use.counts[expert]):
            if not use.counts[expert]:
                break
            share = figures.share(use.counts[expert], use.num_samples)
            room = max(1, width - 10 - len(share))
            bar = "▇" * max(1, round(room * use.counts[expert] / top))
            code = codes[expert]
            lines.append(
                Content.assemble(
                    (f"{GLYPHS[code]} ", COLOURS[code]),
                    (f"{'e' + str(expert):<6}", "$quiet"),
                    (bar.ljust(room), "$secondary"),
                    f"  {share}",
                )
            )
        return lines


def _named(experts: tuple[int, ...]) -> str:
    return " ".join(f"e{expert}" for expert in experts)


def _beside(left: list[Content], right: list[Content], width: int) -> list[Content]:
    """Two blocks side by side, or below each other where there is no room."""
    middle = max(line.cell_length for line in left) + 4
    if middle + max(line.cell_length for line in right) > width:
        return [*left, Content(""), *right]
    return [
        Content.assemble(one, " " * (middle - one.cell_length), other)
        for one, other in zip_longest(left, right, fillvalue=Content(""))
    ]
