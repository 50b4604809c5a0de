"""What the screen costs: TPOT with the app on screen against TPOT without one, from pairs of the same question."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from app.formatting import figures
from devtools.screen_cost.paired_ratio import BEYOND, PairedRatio

LIMIT = 1.02
"""With the screen a token may take so many times as long as without."""


class Answer(NamedTuple):
    """What one answer took."""

    tpot_ms: float
    num_tok: int
    core_share: float
    """Of one core, by the app's process, from the question to the end."""


class Pair(NamedTuple):
    """The same question both ways."""

    on_screen: Answer
    headless: Answer


class ScreenCost:
    """The figures of at least one pair."""

    def __init__(self, pairs: Sequence[Pair], threads: str) -> None:
        """`threads`: how many the engine has. Where they take every core, what the app computes holds them up."""
        self._pairs, self._threads = pairs, threads
        self._on_screen, self._headless = zip(*pairs, strict=True)
        self.tpot_ratio = PairedRatio.of([(pair.on_screen.tpot_ms, pair.headless.tpot_ms) for pair in pairs])
        self.verdict = self.tpot_ratio.verdict(LIMIT)

    @property
    def is_ok(self) -> bool:
        """It was not shown that the limit is exceeded: the interval's lower end is within it."""
        return self.verdict != BEYOND

    @property
    def num_equal(self) -> int:
        """Pairs whose answers have as many tokens."""
        return sum(pair.on_screen.num_tok == pair.headless.num_tok for pair in self._pairs)

    def as_dict(self) -> dict[str, object]:
        """JSON-serialisable, every answer included."""
        ratio = self.tpot_ratio
        return {
            "is_ok": self.is_ok,
            "verdict": self.verdict,
            "tpot_ratio": ratio.median,
            "tpot_ratio_95": [ratio.low, ratio.high],
            "limit": LIMIT,
            "threads": self._threads,
            "num_pairs": ratio.num_pairs,
            "num_pairs_of_equal_length": self.num_equal,
            "pairs": [
                {"on_screen": pair.on_screen._asdict(), "headless": pair.headless._asdict()} for pair in self._pairs
            ],
        }

    def lines(self) -> list[str]:
        """For a person."""
        ratio = self.tpot_ratio
        equal = figures.of(self.num_equal, ratio.num_pairs)
        return [
            f"{ratio.num_pairs} pairs, the same question on screen and headless in turn, by one engine;"
            f" equally long in {equal}; threads: {self._threads}",
            _row("on screen", self._on_screen),
            _row("headless", self._headless),
            f"TPOT on screen over headless  {ratio.median:.3f}x   (95 %: {ratio.low:.3f} - {ratio.high:.3f},"
            f" at most {LIMIT:.2f}x)   {self.verdict}",
        ]


def _row(name: str, answers: Sequence[Answer]) -> str:
    tpot_ms = statistics.median(answer.tpot_ms for answer in answers)
    core_share = statistics.median(answer.core_share for answer in answers)
    num_tok = sum(answer.num_tok for answer in answers)
    return f"{name:<12}TPOT {tpot_ms:7.2f} ms   the app's process {core_share:5.1%} of a core   {num_tok} tok"
