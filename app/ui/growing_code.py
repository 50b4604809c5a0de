"""A block of code that is being written: its finished lines are highlighted once."""

from __future__ import annotations

import re

from app.formatting.markdown import language_of
from app.ui.code_colours import Line, highlighted

_WINDOW = 24
"""Lines at the end that are highlighted again as the code grows: at least these, at most four times as many."""
_OPENING = re.compile(r"^( {0,3})(`{3,}|~{3,})(.*)$")


class GrowingCode:
    """An open fence. Lines of which the colours are settled move to `settled`; the window behind them is highlighted
    again with every growth.

    A line is settled once what follows it looks the same when highlighted without it. A comment or string longer than
    the window is cut all the same, and its first line highlighted in front of what follows. What a cut gets wrong is
    right when the answer is finished, because it is then highlighted as a whole.
    """

    def __init__(self, opening: str, number: int = 1) -> None:
        """`opening` is the first line of a fence, without its end; `number` its place among the answer's blocks."""
        self.number = number
        found = _OPENING.match(opening)
        indent, marks, info = found.groups() if found is not None else ("", "```", "")
        self.language, self._indent = language_of(info), len(indent)
        self._closing = re.compile(rf"^ {{0,3}}{marks[0]}{{{len(marks)},}}[ \t]*$")
        self._unfinished = ""
        self._window: list[str] = []
        self._context: list[str] = []
        """A line in front of the window, without which it would look different."""
        self._next_cut = 2 * _WINDOW
        self.settled: list[Line] = []
        self.is_open = True

    def grow(self, added: str) -> str:
        """Take in more of the answer; returns what stands behind the end of the block, once that has been reached."""
        *finished, self._unfinished = (self._unfinished + added).split("\n")
        for number, line in enumerate(finished):
            if self._closing.match(line):
                rest, self._unfinished = "\n".join([*finished[number + 1 :], self._unfinished]), ""
                self._close()
                return rest
            self._window.append(self._without_indent(line))
            if len(self._window) >= self._next_cut:
                self._settle()
        return ""

    def open_lines(self) -> list[Line]:
        """The lines that are not settled, as they look now. Blank ones at the end are left out."""
        last = [] if self._closing.match(self._unfinished) else [self._without_indent(self._unfinished)]
        lines = [*self._window, *last]
        while lines and not lines[-1]:
            lines.pop()
        return self._highlighted(self._context, lines) if lines else []

    def _close(self) -> None:
        self.settled += self.open_lines()
        self.settled = self.settled or [()]
        self._window, self.is_open = [], False

    def _settle(self) -> None:
        """Settle the window's first lines, if a place is found behind which nothing depends on them."""
        lines, is_long = self._highlighted(self._context, self._window), len(self._window) >= 4 * _WINDOW
        tries: list[tuple[int, list[str]]] = [(at, []) for at in self._places()[:2]]
        tries += [(_WINDOW, self._opener(lines, _WINDOW))] if is_long else []
        for at, context in tries:
            if self._highlighted(context, self._window[at:]) == lines[at:]:
                return self._cut(lines, at, context)
        if is_long:
            return self._cut(lines, _WINDOW, self._context)
        self._next_cut += _WINDOW
        return None

    def _places(self) -> list[int]:
        """Where the window may be cut, the likeliest first: the lines set in least, the last of those first."""
        numbers = [at for at in range(1, _WINDOW + 1) if self._window[at].strip()]
        return sorted(numbers, key=lambda at: (len(self._window[at]) - len(self._window[at].lstrip()), -at))

    def _cut(self, lines: list[Line], at: int, context: list[str]) -> None:
        self.settled += lines[:at]
        self._window, self._context = self._window[at:], context
        self._next_cut = len(self._window) + _WINDOW

    def _opener(self, lines: list[Line], at: int) -> list[str]:
        """The line on which what reaches into line `at` began: it is the first of those that end in that role."""
        if not lines[at]:
            return self._context
        role, begun = lines[at][0].role, at
        while begun > 0 and (not lines[begun - 1] or lines[begun - 1][-1].role == role):
            begun -= 1
        return [self._window[begun]] if begun else self._context or [self._window[0]]

    def _highlighted(self, context: list[str], lines: list[str]) -> list[Line]:
        return highlighted("\n".join([*context, *lines]), self.language)[len(context) :]

    def _without_indent(self, line: str) -> str:
        return line[min(self._indent, len(line) - len(line.lstrip(" "))) :]
