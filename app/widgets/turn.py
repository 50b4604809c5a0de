"""One turn of the transcript: a question, an answer while it is written and after, or a notice."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Markdown, Static
from textual.widgets.markdown import MarkdownStream

from app.sanitise import visible
from app.widgets.finished_answer import FinishedAnswer
from app.widgets.live_markdown import LiveMarkdown


class QuestionTurn(Static):
    """What the user said. Never markup."""

    def __init__(self, text: str) -> None:
        super().__init__(visible(text), markup=False)


class Notice(Static):
    """A quiet line of the app's own, not part of the chat."""

    def __init__(self, text: str, *, is_error: bool = False) -> None:
        super().__init__(visible(text), markup=False, classes="-error" if is_error else "")


class AnswerTurn(Vertical):
    """An answer. `finish` turns the live Markdown into one widget."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.is_finished = False
        self._stream: MarkdownStream | None = None
        self._markers: list[str] = []

    def compose(self) -> ComposeResult:
        yield Static(id="markers", markup=False)
        yield LiveMarkdown()

    @property
    def is_shown(self) -> bool:
        """It is in the transcript, not of a chat that was left."""
        return self.is_attached and self.is_mounted

    async def add(self, text: str) -> None:
        """Append to the live answer."""
        shown = visible(text)
        self.text += shown
        if self._stream is None:
            self._stream = Markdown.get_stream(self.query_one(Markdown))
            shown = self.text = self.text.lstrip("\n")
        await self._stream.write(shown)

    def mark(self, marker: str) -> None:
        """Note a change that happened within the answer."""
        self._markers.append(marker)
        line = self.query_one("#markers", Static)
        line.update(Content.styled("⇄ " + "  ·  ".join(self._markers), "$approx"))
        line.display = True

    async def finish(self, text: str, footnote: str, *, error: str = "") -> None:
        """Freeze the answer and put what it cost below it. Markers stay."""
        self.is_finished = True
        if self._stream is not None:
            await self._stream.stop()
            self._stream = None
        self.text = visible(text).strip("\n")
        tail = [FinishedAnswer(self.text)] if self.text.strip() else []
        notes = [Static(visible(error), classes="answer-error", markup=False)] if error else []
        notes += [Static(visible(footnote), classes="footnote", markup=False)] if footnote else []
        with self.app.batch_update():
            await self.query_one(Markdown).remove()
            await self.mount_all([*tail, *notes])
