"""One turn of the transcript: a question, an answer while it is written and after, or a notice of the app's own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from app.chat import attachments, footnote
from app.chat.exchange import Exchange
from app.formatting.sanitise import visible
from app.ui.code_colours import CLICK, CODE
from app.ui.key_map import bindings_of, key_for
from app.ui.widgets.answer_text import FinishedAnswer, LiveAnswer
from app.ui.widgets.footnote_lines import FootnoteLines
from app.ui.widgets.text_lines import TextLines
from app.ui.widgets.thinking_block import ThinkingBlock

SHOWN_LINES, SHOWN_CHARACTERS = 30, 3000
"""How much of a question is shown; what is longer is folded to less."""
_FOLDED_LINES, _FOLDED_CHARACTERS = 12, 1200
_OPEN_CHARACTERS = 100_000
"""Laying out more would be felt."""


QUESTION, THINKING, ANSWER = "question", "thinking", "answer"
"""Parts of turns that are searched."""


class TurnWidget(Widget, can_focus=True):
    """A turn that can have the focus."""

    FOCUS_ON_CLICK = False
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("turn")]

    exchange: Exchange

    def on_click(self, event: events.Click) -> None:
        """A click takes the focus; selecting with the mouse does not."""
        if not self.screen.get_selected_text():
            self.focus(scroll_visible=False)

    def show_left_out(self) -> None:
        """Whether the model still sees the turn."""
        self.set_class(self.exchange.is_unseen, "-left-out")

    def mark_parts(self, pattern: re.Pattern[str] | None, current: tuple[str, int] | None = None) -> None:
        """Mark what was found, and more strongly the match of the part and number `current`."""
        for part, lines in self.parts.items():
            lines.mark(pattern, current[1] if current is not None and current[0] == part else None)

    @property
    def parts(self) -> dict[str, TextLines]:
        """The texts that can be searched; none while they are being written."""
        return {}

    def open_part(self, part: str) -> None:
        """Show a part that is folded."""

    def refresh_notes(self) -> None:
        """What is told with the turn has changed, such as its versions or the keys for them."""

    def toggle_fold(self) -> None:
        """Show or fold what is long."""


class QuestionTurn(TextLines, TurnWidget, can_focus=True):
    """What the user said. Never markup. A long one shows its beginning."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__()
        self.exchange = exchange
        self._is_open = False

    def on_mount(self) -> None:
        self.show_left_out()

    @property
    def parts(self) -> dict[str, TextLines]:
        return {QUESTION: self}

    def open_part(self, part: str) -> None:
        if self.is_long and not self._is_open:
            self.toggle_fold()

    @property
    def is_long(self) -> bool:
        """It is folded unless asked for."""
        text = self.exchange.question.text
        is_long = len(text) > SHOWN_CHARACTERS or text.count("\n") >= SHOWN_LINES
        return is_long or bool(self.exchange.question.attachments)

    def renderable(self, *, is_seen: bool) -> Text:
        text, note = self.exchange.question.text, ""
        shown = text
        if self.is_long:
            limit = _OPEN_CHARACTERS if self._is_open else _FOLDED_CHARACTERS
            shown = text[:limit] if self._is_open else "\n".join(text[:limit].split("\n")[:_FOLDED_LINES])
            hidden = len(text) - len(shown)
            note = f"\n… {hidden:,} more of {len(text):,} characters" if hidden else ""
            note += "" if self._is_open else f"  ·  {key_for(self, 'turn.fold')} shows them"
        files = self._files()
        versions = footnote.versions(self.exchange.question_place, partial(key_for, self))
        note += f"\n{versions}" if versions else ""
        quiet = Style(color=self.app.theme_variables["quiet"])
        return Text.assemble(visible(shown), (files, quiet), (note, quiet), overflow="fold")

    def _files(self) -> str:
        """The files that were sent with it, a line each; open what is in them, too."""
        lines = []
        for attachment in self.exchange.question.attachments:
            lines.append(f"{'▾' if self._is_open else '▸'} {attachment.name}  ({attachments.about(attachment)})")
            if self._is_open:
                lines += [f"  {line}" for line in attachment.text[:_OPEN_CHARACTERS].expandtabs(4).splitlines()]
        return visible("".join(f"\n{line}" for line in lines))

    def refresh_notes(self) -> None:
        self.refresh_text()

    def toggle_fold(self) -> None:
        if self.is_long:
            self._is_open = not self._is_open
            self.refresh_text()


class Notice(Static):
    """A quiet line of the app's own, not part of the chat."""

    def __init__(self, text: str, *, is_error: bool = False) -> None:
        super().__init__(visible(text), markup=False, classes="-error" if is_error else "")


class AnswerTurn(Vertical, TurnWidget, can_focus=True):
    """An answer: live while it is written, then few widgets made from its record."""

    @dataclass
    class CodeClicked(Message):
        """A block of code was clicked, to copy or to save it."""

        exchange: Exchange
        number: int
        click: str

    def __init__(self, exchange: Exchange, *, shows_thinking: bool) -> None:
        super().__init__()
        self.exchange = exchange
        self._markers = Static(id="markers", markup=False)
        self._thinking = ThinkingBlock(is_open=shows_thinking)
        self._num_shown = 0
        """Characters of the live answer that are on screen."""

    def compose(self) -> ComposeResult:
        yield self._markers
        yield self._thinking
        if self.exchange.is_live:
            yield self._live()
        else:
            yield from self._finished()

    def on_mount(self) -> None:
        self.show_left_out()
        self.show_changes()
        self.show_thinking()

    def on_click(self, event: events.Click) -> None:
        """A click above a block of code copies or saves it, and does not take the focus."""
        meta = event.style.meta
        if CLICK in meta:
            event.stop()
            event.prevent_default()
            self.post_message(self.CodeClicked(self.exchange, meta[CODE], meta[CLICK]))

    @property
    def _text(self) -> str:
        answer = self.exchange.answer
        return answer.text.lstrip("\n").removesuffix("\r") if answer is not None else ""

    @property
    def is_shown(self) -> bool:
        """It is in the transcript, not of a chat that was left."""
        return self.is_attached and self.is_mounted

    @property
    def parts(self) -> dict[str, TextLines]:
        answer = next(iter(self.query(FinishedAnswer)), None)
        return {THINKING: self._thinking} | ({ANSWER: answer} if answer is not None else {})

    @property
    def is_thinking_open(self) -> bool:
        """What the model thought is shown."""
        return self._thinking.is_open

    def open_part(self, part: str) -> None:
        if part == THINKING:
            self.toggle_thinking(True)

    def show_text(self) -> None:
        """Append to the live answer what its record has more."""
        live, text = next(iter(self.query(LiveAnswer)), None), self._text
        if live is None or len(text) <= self._num_shown:
            return
        added, self._num_shown = text[self._num_shown :], len(text)
        live.grow(visible(added))

    def show_thinking(self) -> None:
        """What the model thought so far."""
        exchange, block = self.exchange, self._thinking
        answer = exchange.answer
        block.display = answer is not None and bool(answer.thinking.strip())
        if answer is None or not block.display:
            return
        kept: dict[str, Any] = answer.stats or {}
        is_live = exchange.is_live and not answer.text
        num_tok = exchange.thinking_tok or kept.get("thinking_tok", 0)
        block.show(answer.thinking, num_tok, kept.get("thinking_ms") or 1000 * exchange.thinking_s, is_live=is_live)

    def show_changes(self) -> None:
        """The changes that happened within the answer."""
        line, answer = self._markers, self.exchange.answer
        changes = footnote.changes(answer) if answer is not None else []
        line.update(Content.styled("⇄ " + "  ·  ".join(map(visible, changes)), "$approx"))
        line.display = bool(changes)

    async def finish(self) -> None:
        """Freeze the answer as its record has it, and put what it cost below it."""
        with self.app.batch_update():
            await self.query("LiveAnswer, FinishedAnswer, .answer-error, FootnoteLines").remove()
            if not self.is_shown:  # its chat was left meanwhile
                return
            await self.mount_all(self._finished())
            self.show_changes()
            self.show_thinking()

    async def reopen(self) -> None:
        """Go on writing."""
        with self.app.batch_update():
            await self.query("FinishedAnswer, .answer-error, FootnoteLines").remove()
            if self.is_shown:
                await self.mount(self._live())

    def toggle_thinking(self, is_open: bool | None = None) -> None:
        """Open or fold what the model thought; None: the other."""
        self._thinking.toggle(is_open)

    def toggle_fold(self) -> None:
        self.toggle_thinking()

    def refresh_notes(self) -> None:
        for below in self.query(FootnoteLines):
            below.update(visible(self._footnote))

    @property
    def _footnote(self) -> str:
        return footnote.footnote(self.exchange, partial(key_for, self))

    def _live(self) -> LiveAnswer:
        self._num_shown = len(self._text)
        return LiveAnswer(visible(self._text))

    def _finished(self) -> list[Widget]:
        answer = self.exchange.answer
        if answer is None:
            return []
        text, error, below = visible(answer.text).strip("\n"), footnote.error(answer), self._footnote
        parts: list[Widget] = [FinishedAnswer(text)] if text.strip() else []
        parts += [Static(visible(error), classes="answer-error", markup=False)] if error else []
        parts += [FootnoteLines(visible(below))] if below else []
        return parts
