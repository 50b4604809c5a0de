"""The first line: what this chat is, how full its context is, and the mode."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Static

from app.formatting import figures
from app.ui.widgets.mode_badge import ModeBadge

_METER_WIDTH = 8
_NEARLY_FULL = 0.85


def is_nearly_full(used_tok: int, total_tok: int) -> bool:
    """There is little room left in the context."""
    return total_tok > 0 and used_tok >= _NEARLY_FULL * total_tok


class TitleBar(Horizontal):
    """App, domain and model at the left; context and mode at the right."""

    def compose(self) -> ComposeResult:
        yield Static(id="title", markup=False)
        yield Static(Content.styled(f"ctx {figures.DASH}", "$quiet"), id="context-meter", markup=False)
        yield ModeBadge("mode-badge")

    def show_chat(self, domain: str, model: str, version: tuple[int, int] = (1, 1)) -> None:
        """Name the chat, and which of its versions it is where there are several."""
        parts: list[str | tuple[str, str]] = [("moe-chat", "bold $primary"), (" · ", "$faint"), domain]
        parts += [(" · ", "$faint"), "version {} of {}".format(*version)] if version[1] > 1 else []
        parts += [(" · ", "$faint"), (model, "$quiet")] if model else []
        self._update("#title", Content.assemble(*parts))

    def show_context(self, used_tok: int, total_tok: int, *, is_estimate: bool = False) -> None:
        """Show how much of the context is used; `~` where that is an estimate."""
        if total_tok <= 0:
            content = Content.styled(f"ctx {figures.DASH}", "$quiet")
        else:
            colour = "$warning" if is_nearly_full(used_tok, total_tok) else "$secondary"
            word = ""
            if is_nearly_full(used_tok, total_tok):
                word = " full" if used_tok >= total_tok else " nearly full"
            content = Content.assemble(
                (f"ctx {'~' if is_estimate else ''}{figures.tokens(used_tok)}/{figures.tokens(total_tok)} ", "$quiet"),
                (figures.bar(used_tok, total_tok, _METER_WIDTH), colour),
                (word, "bold $warning"),
            )
        self._update("#context-meter", content)

    def show_mode(self, mode: str, wanted: str | None) -> None:
        """Show the mode."""
        self.query_one(ModeBadge).show(mode, wanted)

    def _update(self, selector: str, content: Content) -> None:
        """Change a part; lay the line out again only when that part's width changed."""
        static = self.query_one(selector, Static)
        before = static.content
        if before != content:
            static.update(content, layout=not isinstance(before, Content) or before.cell_length != content.cell_length)
