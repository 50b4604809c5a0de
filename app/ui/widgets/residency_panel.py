"""RESIDENCY: the heatmap with its heading and key."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from app.formatting import figures
from app.formatting.terms import explained
from app.telemetry.expert_use import HOT
from app.ui.key_map import bindings_of
from app.ui.widgets.panel import Maximisable, heading, wrapped
from app.ui.widgets.residency_map import GLYPHS, ResidencyMap
from engine.events import HOST, IN_USE, LOADING, RESIDENT, SUBSTITUTE, Snapshot

_LEGEND = (
    (IN_USE, "used", "$expert-in-use"),
    (HOT, "hot", "$expert-hot"),
    (RESIDENT, "resident", "$expert-resident"),
    (LOADING, "loading", "$expert-loading"),
    (HOST, "host", "$quiet"),
    (SUBSTITUTE, "subst", "$expert-substitute"),
)

COLOURS = {code: colour for code, _, colour in _LEGEND}
"""The colour of an expert's glyph, by code."""


def legend(*, is_by_slot: bool = False, are_halves: bool = False) -> list[Content]:
    """What the glyphs and colours of experts mean. `are_halves`: cells are drawn as half-blocks, by colour alone."""
    return [
        Content.assemble(
            ("■" if are_halves else GLYPHS[code], "$expert-host" if are_halves and code == HOST else colour),
            ("empty" if code == HOST and is_by_slot else name, "$quiet"),
        )
        for code, name, colour in _LEGEND
    ]


class ResidencyPanel(Maximisable, Vertical):
    """Experts on the device, of all."""

    TITLE: ClassVar[str] = "RESIDENCY"
    EXPLAINED: ClassVar[tuple[str, ...]] = ("resident", "hot")
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("panel")]

    def compose(self) -> ComposeResult:
        yield Static(id="residency-heading", markup=False)
        yield Static(id="residency-legend", markup=False)
        yield ResidencyMap("residency-map")
        if self.is_maximised:
            yield Static(id="residency-terms", markup=False)

    def on_mount(self) -> None:
        self.call_after_refresh(self._show_nothing)

    def _show_nothing(self) -> None:
        if self._snapshot is None:
            self._update("#residency-heading", heading(self.TITLE, figures.DASH, self.size.width, "$quiet"))

    def on_resize(self) -> None:
        """Draw the key and heading again once the map knows its room."""
        if self.is_maximised:
            self.query_one("#residency-terms", Static).update("\n".join(explained(self.EXPLAINED, self.size.width)))
        self.call_after_refresh(self._describe)

    def show(self, snapshot: Snapshot) -> None:
        """Take the newest state."""
        self._snapshot = snapshot
        self.query_one(ResidencyMap).show(snapshot, self.history.use.mark_hot(snapshot.residency))
        self._describe()

    def _describe(self) -> None:
        """The heading and the key, which depend on how the map is laid out."""
        snapshot, layout = self._snapshot, self.query_one(ResidencyMap).layout_plan
        if snapshot is None or layout is None:
            self._show_nothing()
            return
        num_experts = sum(map(len, snapshot.residency))
        on_device = num_experts - sum(codes.count(HOST) for codes in snapshot.residency)
        share = figures.share(on_device, num_experts)
        figure = tuple(f"{note} · {share}" for note in layout.notes) or share
        self._update("#residency-heading", heading(self.TITLE, figure, self.size.width))
        entries = legend(is_by_slot=layout.is_by_slot, are_halves=layout.layers_per_row == 2)
        self._update("#residency-legend", wrapped(entries, self.size.width, " ")[0])

    def _update(self, selector: str, content: Content) -> None:
        static = self.query_one(selector, Static)
        if static.content != content:
            static.update(content, layout=False)
