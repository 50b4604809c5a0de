"""Parts of a thread's time, and what a round of decode is compared with."""

from __future__ import annotations

from devtools.decode_parts import Round
from devtools.part_clock import PartClock


class _Work:
    """Every call takes seconds of a clock that it advances."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def outer(self) -> None:
        self.now_s += 1
        self.inner(2)
        self.inner(3)

    def inner(self, seconds: float) -> None:
        self.now_s += seconds


def test_a_part_within_another_counts_for_itself_alone() -> None:
    work = _Work()
    clock = PartClock(lambda: work.now_s)
    clock.wrap(work, "outer", "outside")
    clock.wrap(work, "inner", lambda seconds: "short" if seconds < 3 else "long")
    work.outer()
    assert clock.seconds == {"outside": 1.0, "short": 2.0, "long": 3.0}
    assert clock.calls == {"outside": 1, "short": 1, "long": 1}
    clock.close()
    work.outer()
    assert clock.calls["outside"] == 1


def test_the_limit_is_the_larger_of_compute_and_loads() -> None:
    assert Round(60.0, 40.0, 50e6, 1e9).limit_ms == 50.0
    assert Round(60.0, 40.0, 50e6, 2e9).limit_ms == 40.0
