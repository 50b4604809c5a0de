"""Chooses the number of compute threads, by timing decode steps while the link is busy, as in real decode."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter
from typing import NamedTuple

from engine.plan import machine

_ROUNDS = 3
_MAX_TRIAL_S = 1.5
_WORTH_A_THREAD = 0.9
"""More threads must take less than this share of the time to be chosen: the link and the screen need a core too."""


class ThreadChoice(NamedTuple):
    """The number chosen and the median milliseconds of a step each number took; empty when the user chose."""

    num_threads: int
    trial_ms: tuple[tuple[int, float], ...]

    def __str__(self) -> str:
        tried = ", ".join(f"{number}: {ms:.0f} ms" for number, ms in self.trial_ms)
        return f"{self.num_threads} compute" + (f" (tried {tried} a step)" if tried else "")


def choose_threads(
    asked: int | None,
    set_threads: Callable[[int], None],
    run_step: Callable[[], object],
    link_load: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> ThreadChoice:
    """Sets the thread count: `asked`, or the best of all cores, one less, and half.

    `run_step` is a decode step with the products of its experts; `link_load()` keeps the link's threads busy while it
    is entered. Both are used only where there is a choice. Raises what `run_step` raises; the count is set to the last
    one tried then.
    """
    cores = machine.num_cores()
    candidates = sorted({cores, max(cores - 1, 1), max(cores // 2, 1)})
    if asked is not None or len(candidates) == 1:
        number = asked or candidates[0]
        set_threads(number)
        return ThreadChoice(number, ())
    with link_load():
        best = _trial(candidates, set_threads, run_step)
    chosen = candidates[0]
    for number in candidates[1:]:
        if best[number] < _WORTH_A_THREAD * best[chosen]:
            chosen = number
    set_threads(chosen)
    return ThreadChoice(chosen, tuple((number, best[number] * 1000) for number in candidates))


def _trial(
    candidates: list[int], set_threads: Callable[[int], None], run_step: Callable[[], object]
) -> dict[int, float]:
    """Seconds of the median step for each thread count, measured in turn."""
    times: dict[int, list[float]] = {number: [] for number in candidates}
    started = perf_counter()
    for _ in range(_ROUNDS):
        for number in candidates:
            set_threads(number)
            start = perf_counter()
            run_step()
            times[number].append(perf_counter() - start)
        if perf_counter() - started > _MAX_TRIAL_S:
            break
    return {number: sorted(values)[len(values) // 2] for number, values in times.items()}
