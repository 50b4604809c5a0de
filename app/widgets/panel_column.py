"""The column of live panels."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical

from app.widgets.aes_panel import AesPanel
from app.widgets.link_panel import LinkPanel
from app.widgets.memory_bar import MemoryBar
from app.widgets.panel import Panel
from app.widgets.prefetch_panel import PrefetchPanel
from app.widgets.residency_panel import ResidencyPanel
from app.widgets.tpot_panel import TpotPanel
from engine.events import EngineReady, Snapshot


class PanelColumn(Vertical):
    """Every panel, in the order of the column."""

    def compose(self) -> ComposeResult:
        yield ResidencyPanel(id="residency")
        yield PrefetchPanel("prefetch")
        yield AesPanel("aes")
        yield TpotPanel("tpot")
        yield MemoryBar("memory")
        yield LinkPanel("link")

    def set_model(self, ready: EngineReady) -> None:
        """Take what the figures need to know about the model."""
        self.query_one(AesPanel).top_k = ready.top_k

    def show(self, snapshot: Snapshot) -> None:
        """Pass the newest state to every panel."""
        self.query_one(ResidencyPanel).show(snapshot)
        for panel in self.query(Panel).results(Panel):
            panel.show(snapshot)
