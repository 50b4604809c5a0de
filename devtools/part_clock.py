"""Where the time of one thread goes: exclusive times of methods that are wrapped while it is measured."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from time import perf_counter
from typing import Any


class PartClock:
    """Adds up seconds by part. A part that runs inside another counts for itself alone. For one thread."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self.seconds: defaultdict[str, float] = defaultdict(float)
        """By part."""
        self.calls: Counter[str] = Counter()
        self._inner_s = [0.0]
        self._wrapped: list[tuple[Any, str]] = []

    def wrap(self, owner: Any, method: str, part: str | Callable[..., str]) -> None:
        """Counts the calls of an object's method as a part, or as what `part` says of the arguments, until `close`."""
        function = getattr(owner, method)

        def timed(*arguments: Any, **named: Any) -> Any:
            self._inner_s.append(0.0)
            began_s = self._clock()
            try:
                return function(*arguments, **named)
            finally:
                took_s = self._clock() - began_s
                name = part if isinstance(part, str) else part(*arguments)
                self.seconds[name] += took_s - self._inner_s.pop()
                self.calls[name] += 1
                self._inner_s[-1] += took_s

        setattr(owner, method, timed)
        self._wrapped.append((owner, method))

    def close(self) -> None:
        """The methods are as they were."""
        for owner, method in self._wrapped:
            delattr(owner, method)
        self._wrapped.clear()
