"""RESIDENCY: the heatmap with its heading and key."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from app import figures
from app.widgets.panel import heading
from app.widgets.residency_map import GLYPHS, ResidencyMap
from engine.events import HOST, Snapshot

_LEGEND = (
    (3, "in use", "$expert-in-use"),
    (1, "resident", "$expert-resident"),
    (2, "coming", "$expert-arriving"),
    (0, "host", "$expert-host"),
    (4, "subst", "$expert-substitute"),
)


class ResidencyPanel(Vertical):
    """Experts on the device, of all."""

    _snapshot: Snapshot | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="residency-heading", markup=False)
        yield Static(id="residency-legend", markup=False)
        yield ResidencyMap("residency-map")

    def on_mount(self) -> None:
        self.call_after_refresh(self._show_nothing)

    def _show_nothing(self) -> None:
        if self.query_one(ResidencyMap).layout_plan is None:
            self._update("#residency-heading", heading("RESIDENCY", figures.DASH, self.size.width, "$quiet"))

    def on_resize(self) -> None:
        """Draw the key and heading again once the map knows its room."""
        if self._snapshot is not None:
            self.call_after_refresh(self.show, self._snapshot)

    def show(self, snapshot: Snapshot) -> None:
        """Take the newest state."""
        self._snapshot = snapshot
        num_experts = sum(map(len, snapshot.residency))
        on_device = num_experts - sum(codes.count(HOST) for codes in snapshot.residency)
        heat = self.query_one(ResidencyMap)
        heat.show(snapshot)
        share = figures.share(on_device, num_experts)
        note = heat.layout_plan.note if heat.layout_plan else ""
        self._update(
            "#residency-heading",
            heading("RESIDENCY", f"{note}  {figures.of(on_device, num_experts)}" if note else share, self.size.width),
        )
        self._update("#residency-legend", self._legend(heat))

    def _update(self, selector: str, content: Content) -> None:
        static = self.query_one(selector, Static)
        if static.content != content:
            static.update(content, layout=False)

    def _legend(self, heat: ResidencyMap) -> Content:
        layout = heat.layout_plan
        if layout is None:
            return Content("")
        parts: list[str | tuple[str, str]] = []
        for code, name, colour in _LEGEND:
            glyph = "■" if layout.layers_per_row == 2 else GLYPHS[code]
            parts += [" "] if parts else []
            parts += [(glyph, colour), (f" {name}", "$quiet")]
        return Content.assemble(*parts)
