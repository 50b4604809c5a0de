"""Code that grows: highlighted once, and as it is when the whole of it is highlighted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pygments.lexer import Lexer  # type: ignore[import-untyped]

from app.ui.code_colours import Line, highlighted
from app.ui.growing_code import GrowingCode

MOST_LINES_A_GROWTH = 500
"""Where a line is settled; the median is far below."""

FUNCTIONS = [
    line
    for number in range(100)
    for line in (f"def f_{number}(x: int) -> int:", f'    """Add {number}."""', f"    return x + {number}", "")
]
LONG_COMMENT = [
    "def f():",
    '    """What it does.',
    "",
    *["    One more word's line of it."] * 150,
    '    """',
    "    return 1",
]
CASES = [
    ("python", FUNCTIONS),
    ("python", [*FUNCTIONS[:20], *LONG_COMMENT, *FUNCTIONS[:100]]),
    ("python", ["x = [", *[f'    "{number}",' for number in range(150)], "]"]),
    ("c", [*["int a;  // one"] * 50, "/* all", *[" * of it"] * 20, " */", *["int b = 2;"] * 100]),
    ("json", ["{", *[f'  "key {number}": [1, true],' for number in range(150)], "}"]),
    ("", ["plain"] * 150),
    ("no such language", ["plain", ""] * 80),
]


@pytest.fixture
def num_highlighted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The number of lines of each text that is highlighted."""
    counted: list[int] = []
    tokens = Lexer.get_tokens

    def count(self: Lexer, text: str, unfiltered: bool = False) -> object:
        counted.append(text.count("\n") + 1)
        return tokens(self, text, unfiltered)

    monkeypatch.setattr(Lexer, "get_tokens", count)
    return counted


def _shown(code: GrowingCode) -> list[Line]:
    return [*code.settled, *code.open_lines()]


@pytest.mark.parametrize(("language", "lines"), CASES)
def test_each_line_is_highlighted_a_bounded_number_of_times(
    language: str, lines: list[str], num_highlighted: list[int]
) -> None:
    code = GrowingCode(f"```{language}")
    costs = []
    for start in range(0, len(lines), 4):
        num_highlighted.clear()
        code.grow("\n".join([*lines[start : start + 4], ""]))
        code.open_lines()
        costs.append(sum(num_highlighted))
    assert max(costs) <= MOST_LINES_A_GROWTH
    assert sum(costs) <= 200 * len(costs)
    assert code.grow("```\nbehind") == "behind"
    assert code.settled == highlighted("\n".join(lines).rstrip("\n"), language)


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_the_end_of_a_block_is_found_however_it_comes(step: int) -> None:
    text = "x = 1\n ~~~\n\n\n~~~~  \nbehind\n"
    code, rest = GrowingCode(" ~~~~py x"), ""
    for start in range(0, len(text), step):
        added = text[start : start + step]
        rest += code.grow(added) if code.is_open else added
    assert rest == "behind\n"
    assert ["".join(piece.text for piece in line) for line in code.settled] == ["x = 1", "~~~"]


def test_an_end_that_is_not_complete_is_not_shown_as_code() -> None:
    code = GrowingCode("```")
    code.grow("x\n\n```")
    assert [piece.text for line in _shown(code) for piece in line] == ["x"]
    assert code.is_open
