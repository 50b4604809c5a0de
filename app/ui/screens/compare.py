"""Two answers to one question beside each other, EXACT and APPROX: their labels, what they cost, where they part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from app.chat import comparison
from app.chat.comparison import Parting
from app.formatting import figures
from app.formatting.sanitise import visible
from app.storage import answer_record
from app.storage.records import FAILED, PARTIAL, TurnRecord
from app.ui.key_map import bindings_of
from app.ui.screens.sheets import AboutChat
from app.ui.widgets.key_line import KeyLine
from app.ui.widgets.title_bar import mode_content
from engine.config import APPROX, EXACT
from engine.events import Event, Snapshot


class Compared(NamedTuple):
    """The two answers; None: the engine has not been asked yet."""

    exact: TurnRecord | None
    approximate: TurnRecord | None


class CompareScreen(AboutChat, ModalScreen[None]):
    """Follows an answer that is still being written. Stacked where there is no room for columns."""

    AUTO_FOCUS = "#compare-exact"
    ACTION_SCOPE: ClassVar[str] = "compare"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("compare")]
    HORIZONTAL_BREAKPOINTS = [(0, "-stacked"), (100, "-beside")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (16, "-low"), (24, "-tall")]  # noqa: RUF012

    def __init__(self, question: str, answers: Callable[[], Compared]) -> None:
        """`answers` gives the two as they are now."""
        super().__init__()
        self._question, self._answers = question, answers
        self._shown: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        first_line = visible(self._question.strip().partition("\n")[0][:300])
        with Vertical(id="compare"):
            yield Static(Content.assemble(("moe-chat", "bold $primary"), " · ", first_line), id="compare-title")
            with Container(id="compare-sides"):
                for name in ("exact", "approximate"):
                    with Vertical(classes="compare-side"):
                        yield Static(id=f"compare-{name}-head", markup=False)
                        with VerticalScroll(id=f"compare-{name}", can_focus=True):
                            yield Static(id=f"compare-{name}-shared", markup=False)
                            yield Static(id=f"compare-{name}-rest", markup=False)
            yield Static(id="compare-note", markup=False)
            yield KeyLine()

    def on_mount(self) -> None:
        self._show()

    async def engine_events(self, happened: list[Event]) -> None:
        """An answer may have grown."""
        self._show()

    def engine_snapshot(self, snapshot: Snapshot) -> None:
        """Nothing of it is shown here."""

    def action_back(self) -> None:
        """Back to the chat; an answer goes on being written."""
        self.dismiss(None)

    def action_other_side(self) -> None:
        """The focus to the other answer, to scroll it."""
        self.focus_next()

    def _show(self) -> None:
        exact, approximate = self._answers()
        both = (exact, approximate)
        now = tuple((len(one.text), one.state, one.mode_label) if one is not None else None for one in both)
        if now == self._shown or not self.is_mounted:
            return
        self._shown = now
        texts = [one.text.strip("\n") if one is not None else "" for one in both]
        is_open = any(one is None or one.state == PARTIAL for one in both)
        parting = comparison.parting(texts[0], texts[1])
        if parting is not None and is_open and parting.at >= len(min(texts, key=len).rpartition(" ")[0]):
            parting = None  # as far as it has been written
        names, modes = ("exact", "approximate"), (EXACT, APPROX)
        for name, mode, answer, text in zip(names, modes, both, texts, strict=True):
            self.query_one(f"#compare-{name}-head", Static).update(_head(mode, answer))
            before, rest = _divided(text, parting)
            self.query_one(f"#compare-{name}-shared", Static).update(before)
            self.query_one(f"#compare-{name}-shared").display = bool(before)
            self.query_one(f"#compare-{name}-rest", Static).update(rest)
        if parting is not None and not is_open:
            self.call_after_refresh(self._to_parting)
        self.query_one("#compare-note", Static).update(_note(exact, approximate, parting, is_open=is_open))

    def _to_parting(self) -> None:
        """Scroll both answers to the first line that differs."""
        for name in ("exact", "approximate"):
            pane, rest = self.query_one(f"#compare-{name}", VerticalScroll), self.query_one(f"#compare-{name}-rest")
            pane.scroll_to_widget(rest, animate=False, top=True)


def _head(mode: str, answer: TurnRecord | None) -> Content:
    """The mode that was asked for, what the answer is by its record, and what it cost."""
    stats: dict[str, Any] = (answer.stats if answer is not None else None) or {}
    if answer is None:
        about = "waits for the engine"
    elif answer.state == PARTIAL:
        about = "being written …"
    else:
        lines = [line for line in answer_record.kept_summaries(stats) if line]
        about = "\n".join(lines) or (answer.markers[-1] if answer.state == FAILED and answer.markers else "no record")
    return Content.assemble(mode_content(mode), "  ", (visible(about), "$quiet"))


def _divided(text: str, parting: Parting | None) -> tuple[Content, Content]:
    """An answer's lines before the first one that differs, and those from there on: quiet as far as both are the same,
    the first word that differs marked."""
    if parting is None:
        return Content(visible(text)), Content("")
    start = text.rfind("\n", 0, parting.at) + 1
    before = Content.styled(visible(text[: max(0, start - 1)]), "$quiet")
    shared, rest = visible(text[start : parting.at]), visible(text[parting.at :])
    word = rest.split(maxsplit=1)[0] if rest.split() else ""
    gap = rest[: rest.index(word)] if word else rest
    return before, Content.assemble((shared, "$quiet"), gap, (word, "bold reverse"), rest[len(gap) + len(word) :])


def _note(exact: TurnRecord | None, approximate: TurnRecord | None, parting: Parting | None, *, is_open: bool) -> str:
    """Where the texts part, how the times compare, and what else is to be known."""
    if parting is not None:
        said = [f"The texts differ from word {parting.word:,} on, in line {parting.line:,}."]
    else:
        said = ["The texts are the same so far." if is_open else "The texts are the same."]
    if exact is None or approximate is None or is_open:
        return " ".join(said)
    ratio = comparison.speed_ratio(exact, approximate)
    said.append(f"Under APPROX a token took {figures.DASH if ratio is None else f'{ratio:.2f}'} times as long.")
    return " ".join([*said, *comparison.remarks(exact, approximate)])
