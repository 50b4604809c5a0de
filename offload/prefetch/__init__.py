"""What to fetch before it is asked for: prefetchers, one per file. Pure: no tensors, no I/O, no clock of their own."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Protocol, cast

_PREFETCHERS = {
    "router-ahead": ("offload.prefetch.router_ahead", "RouterAheadPrefetcher"),
    "none": ("offload.prefetch.none", "NoPrefetcher"),
}

PREFETCH_NAMES = tuple(_PREFETCHERS)
"""Names `make_prefetcher` knows."""


class Prefetcher(Protocol):
    """Picks the experts of the next layer to submit at prefetch priority."""

    needs_prediction: bool
    """Whether `plan` looks at the prediction; if not, nobody needs to make one."""

    def plan(self, predicted: Sequence[int], is_absent: Callable[[int], bool]) -> list[int]:
        """The experts to submit, in order. `predicted` is the next layer's ranking, best first.

        `is_absent(expert)`: neither resident nor on its way.
        """
        ...


def make_prefetcher(name: str, depth: int) -> Prefetcher:
    """The prefetcher called `name`, fetching at most `depth` experts a layer. Raises ValueError for an unknown name."""
    if name not in _PREFETCHERS:
        raise ValueError(f"unknown prefetcher {name!r}: choose one of {', '.join(PREFETCH_NAMES)}")
    module, attribute = _PREFETCHERS[name]
    return cast(Prefetcher, getattr(importlib.import_module(module), attribute)(depth))
