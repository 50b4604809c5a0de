"""The first line of a screen: what this chat is, or which panel or layer; how full the context is, and the mode."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from app.formatting import figures
from app.formatting.sanitise import visible
from engine.config import APPROX, EXACT

GLYPHS = {EXACT: "◆", APPROX: "≈"}


def mode_content(mode: str, wanted: str | None = None) -> Content:
    """The mode as the engine confirmed it, and the one that was asked for and is not yet confirmed."""
    colour = "$approx" if mode == APPROX else "$exact"
    parts: list[str | tuple[str, str]] = [(f"{GLYPHS[mode]} {mode.upper()}", f"bold {colour}")]
    if wanted is not None and wanted != mode:
        parts.append((f" → {GLYPHS[wanted]}", "$quiet"))
    return Content.assemble(*parts)


class ModeBadge(Widget):
    """The mode; a click toggles it."""

    class Clicked(Message):
        """The user wants the other mode."""

    def __init__(self, widget_id: str | None = None) -> None:
        super().__init__(id=widget_id)
        self._content = mode_content(EXACT)
        self.tooltip = (
            "EXACT computes what the whole model would. "
            "APPROX may replace a missed expert by one on the device. A click changes it."
        )

    def show(self, mode: str, wanted: str | None) -> None:
        """Show a confirmed mode and a wanted one."""
        content = mode_content(mode, wanted)
        if content != self._content:
            self._content = content
            self.refresh(layout=True)

    def render(self) -> Content:
        return self._content

    def on_click(self) -> None:
        self.post_message(self.Clicked())


_METER_WIDTH = 8
_NEARLY_FULL = 0.85


def is_nearly_full(used_tok: int, total_tok: int) -> bool:
    """There is little room left in the context."""
    return total_tok > 0 and used_tok >= _NEARLY_FULL * total_tok


class ChatTitle(Widget):
    """What this chat is. Where that is too long, the program's name goes first, then the words of the version."""

    def __init__(self, widget_id: str | None = None) -> None:
        super().__init__(id=widget_id)
        self._wordings: list[Content] = []
        """The same, from long to short."""

    def show(self, wordings: list[Content]) -> None:
        """Show the first of these that fits; the end of the last may be cut."""
        if wordings != self._wordings:
            self._wordings = wordings
            self.refresh()

    def render(self) -> Content:
        fitting = (content for content in self._wordings if content.cell_length <= self.content_size.width)
        return next(fitting, self._wordings[-1] if self._wordings else Content())


def _joined(*parts: Content | str | tuple[str, str]) -> Content:
    contents = [Content.assemble(part) for part in parts]
    return Content.styled(" · ", "$faint").join(content for content in contents if content)


class TitleBar(Horizontal):
    """App, domain and model at the left; context and mode at the right."""

    def compose(self) -> ComposeResult:
        yield ChatTitle("title")
        yield Static(Content.styled(f"ctx {figures.DASH}", "$quiet"), id="context-meter", markup=False)
        yield ModeBadge("mode-badge")

    def show_chat(self, domain: str, model: str, version: tuple[int, int] = (1, 1), preset: str = "") -> None:
        """Name the chat, which of its versions it is where there are several, and its preset. The end may be cut."""
        number, count = version
        versions = (f"version {number} of {count}", f"v{number}/{count}") if count > 1 else ("",)
        about = [_joined(domain, words, visible(preset), (model, "$quiet")) for words in versions]
        self.query_one(ChatTitle).show([_joined(("moe-chat", "bold $primary"), about[0]), *about])

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


class ViewTitle(Horizontal):
    """Where one is at the left, the mode at the right."""

    def compose(self) -> ComposeResult:
        yield Static(id="view-title", markup=False)
        yield ModeBadge("view-mode")

    def show_place(self, place: str) -> None:
        """Say where one is."""
        self.query_one("#view-title", Static).update(
            Content.assemble(("moe-chat", "bold $primary"), (" · ", "$faint"), (place, "$quiet"))
        )

    def show_mode(self, mode: str) -> None:
        """Show the mode."""
        self.query_one(ModeBadge).show(mode, None)
