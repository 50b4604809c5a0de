"""f1: keys, and what the words on screen mean."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from app.paths import AppPaths
from app.widgets.name_rows import name_rows

_KEYS = (
    ("enter", "send"),
    ("shift+enter, ctrl+j", "new line"),
    ("up, down", "what was sent before, from the first and last line"),
    ("esc", "stop and keep the partial answer; take back a waiting message"),
    ("f5", "EXACT / APPROX, from the next token"),
    ("f3", "choose a domain and begin a chat in it; there b and d build and delete its profile"),
    ("f4", "panels full, as one line, off"),
    ("ctrl+n", "new chat in this domain"),
    ("ctrl+c", "copy the selection; else stop"),
    ("page up, page down", "scroll the transcript"),
    ("end", "follow the answer again, from an empty prompt"),
    ("f8", "start the engine again after it stopped"),
    ("ctrl+p, f1, ctrl+q", "palette, this help, quit"),
)

_WORDS = (
    ("EXACT", "the token ids that the whole model in memory would give"),
    ("APPROX", "a missed expert of low score may be replaced by a resident one, counted as substituted"),
    ("routed", "experts the router chose in decode: hits + late + misses + substituted"),
    ("hit", "the expert was on the device in time, by itself or thanks to a prefetch"),
    ("late", "it was on its way when it was needed"),
    ("miss", "it had to be fetched, and was waited for"),
    ("profile", "which experts a domain's prompts use; choosing the domain brings those in beforehand"),
    ("TTFT, TPOT", "time to the first token; time per output token after it"),
)


class HelpScreen(ModalScreen[None]):
    """Closed by any of its keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,f1,q,enter", "dismiss", "Close")]

    def compose(self) -> ComposeResult:
        paths = AppPaths.from_environment()
        with VerticalScroll(classes="sheet"):
            yield Static("Keys", classes="sheet-title")
            yield from name_rows(_KEYS, 21)
            yield Static("Words", classes="sheet-title")
            yield from name_rows(_WORDS, 12)
            yield Static("Kept in", classes="sheet-title")
            yield from name_rows(tuple((name, str(path)) for name, path in paths.listed()), 12)
            yield Static("esc closes", classes="sheet-close")
