"""An answer's Markdown as lines: while it is written, looking as it will when it is finished, and once it is."""

from __future__ import annotations

from markdown_it.token import Token
from rich.console import Group
from rich.segment import Segment
from textual.strip import Strip

from app.formatting.markdown import FIRST_CODE, code_tokens, parser
from app.ui.code_colours import Line, code_head, code_segments
from app.ui.growing_code import GrowingCode
from app.ui.markdown_style import FinishedMarkdown
from app.ui.widgets.growing_lines import GrowingLines
from app.ui.widgets.text_lines import TextLines

_LINES_A_BEAT = 64
"""Where the last block is longer, it is laid out again only with every second growth, and so on: a table or a list
depends on each of its lines, and the cost of a growth is not to rise with their number."""


class LiveAnswer(GrowingLines):
    """Grows at its end. Only the last block of its Markdown is laid out again, of a block of code its last lines."""

    def __init__(self, markdown: str) -> None:
        super().__init__()
        self._parts: list[list[Token] | GrowingCode] = []
        """What will not change any more, in batches as it was settled; the last may be code that is still written."""
        self._at = (0, 0)
        """How many of them have been laid out, and how many lines of the next one, the line above code included."""
        self._num_code = 0
        """How many blocks of code are in what will not change any more."""
        self._open, self._num_grown = "", 0
        """What stands behind them, and how often it has grown since it was taken in."""
        self._open_tokens: list[Token] = []
        self._block_lines = 0
        """Of the last block, when it was laid out."""
        self._take(markdown)

    def grow(self, added: str) -> None:
        """The answer has more Markdown at its end."""
        if self._take(added):
            self.show_growth()

    def renderable(self, *, is_seen: bool) -> Group:
        return Group(*(self._markdown(part) for part in self._parts if not isinstance(part, GrowingCode)))

    def settled_strips(self, width: int, *, begins_anew: bool) -> list[Strip]:
        strips: list[Strip] = []
        number, line = (0, 0) if begins_anew else self._at
        for part in self._parts[number:]:
            if isinstance(part, GrowingCode):
                if line == 0:
                    head = code_head(part.number, part.language, width, self.app.theme_variables)
                    strips.append(Strip(head))
                strips += self._code_strips(part.settled[max(0, line - 1) :], width)
                if part.is_open:
                    self._at = (number, 1 + len(part.settled))
                    return strips
            else:
                strips += self._strips_of(self._markdown(part), width)
            strips += [Strip([])] * (2 if isinstance(part, list) and part[-1].type == "hr" else 1)
            number, line = number + 1, 0
        self._at = (number, 0)
        return strips

    def open_strips(self, width: int) -> list[Strip]:
        if (code := self._growing_code) is not None:
            return self._code_strips(code.open_lines(), width)
        return self._strips_of(self._markdown(self._open_tokens), width)

    @property
    def _growing_code(self) -> GrowingCode | None:
        last = self._parts[-1] if self._parts else None
        return last if isinstance(last, GrowingCode) and last.is_open else None

    def _code_strips(self, lines: list[Line], width: int) -> list[Strip]:
        colours = self.app.theme_variables
        return [Strip(Segment.strip_links(part)) for line in lines for part in code_segments(line, width, colours)]

    def _markdown(self, tokens: list[Token]) -> FinishedMarkdown:
        return FinishedMarkdown(tokens, self.app.theme_variables)

    def _take(self, added: str) -> bool:
        """Take in more Markdown; False: it waits for the next growth."""
        if (code := self._growing_code) is not None:
            added = code.grow(added)
            if code.is_open:
                return True
        self._open += added
        self._num_grown += 1
        if self._num_grown <= self._block_lines // _LINES_A_BEAT:
            return False
        self._num_grown = 0
        self._parse()
        self._block_lines = self._open.count("\n")
        return True

    def _parse(self) -> None:
        """Whatever stands before the last block is settled, once that block's first line is complete: until then it
        may turn out to go on with the one before. A fence is code as soon as its first line is complete."""
        self._open_tokens = self._tokens(self._open)
        lines = self._open.split("\n")
        blocks = [token for token in self._open_tokens if token.level == 0 and token.map]
        start = _start(blocks, -1)
        is_sure = start < len(lines) - 1
        if not is_sure:
            if len(blocks) < 3:
                return
            start = _start(blocks, -2)
        if len(blocks) > 1:
            settled = self._tokens("\n".join(lines[:start]))
            self._parts.append(settled)
            self._num_code += len(code_tokens(settled))
            self._open = "\n".join(lines[start:])
            self._open_tokens = self._tokens(self._open)
        if not is_sure:
            return
        if blocks and blocks[-1].type == "fence":
            self._num_code += 1
            code = GrowingCode(lines[start], self._num_code)
            self._parts.append(code)
            self._open, self._open_tokens = code.grow("\n".join(lines[start + 1 :])), []
            if not code.is_open:
                self._parse()

    def _tokens(self, markdown: str) -> list[Token]:
        return parser().parse(markdown, {FIRST_CODE: self._num_code + 1})


class FinishedAnswer(TextLines):
    """An answer that will not change any more."""

    def __init__(self, markdown: str) -> None:
        super().__init__()
        self.markdown = markdown
        self._tokens = parser().parse(markdown)

    def renderable(self, *, is_seen: bool) -> FinishedMarkdown:
        return FinishedMarkdown(self._tokens, self.app.theme_variables, highlights=is_seen)


def _start(blocks: list[Token], number: int) -> int:
    """The first line of a block."""
    return blocks[number].map[0] if blocks and blocks[number].map else 0  # type: ignore[index]
