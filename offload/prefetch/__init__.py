"""What to fetch before it is asked for: prefetchers, one per file. Pure: no tensors, no I/O, no clock of their own."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, cast, runtime_checkable

from offload.prefetch.overlap_window import Window

_PREFETCHERS = {
    "router-ahead": ("offload.prefetch.router_ahead", "RouterAheadPrefetcher"),
    "none": ("offload.prefetch.none", "NoPrefetcher"),
    "router-ahead-floor": ("offload.prefetch.router_ahead_floor", "RouterAheadFloorPrefetcher"),
    "router-ahead-gain": ("offload.prefetch.router_ahead_gain", "RouterAheadGainPrefetcher"),
    "layers-ahead-gain": ("offload.prefetch.layers_ahead_gain", "LayersAheadGainPrefetcher"),
}

PREFETCH_NAMES = tuple(_PREFETCHERS)
"""Names `make_prefetcher` knows."""


class Prefetcher(Protocol):
    """Picks the experts of the next layer to submit at prefetch priority."""

    needs_prediction: bool
    """Whether `plan` looks at the prediction; if not, nobody needs to make one."""
    needs_window: bool
    """Whether `plan` looks at the window; if not, nobody needs to measure one."""

    def plan(
        self, predicted: Sequence[int], is_absent: Callable[[int], bool], window: Window | None = None, layer: int = 0
    ) -> list[int]:
        """The experts to submit, in order. `predicted` is the next layer's ranking, best first.

        `is_absent(expert)`: neither resident nor on its way. `window`: None where it is not measured (yet). `layer`:
        the next layer's number, for those that learn from what comes of it (see `observe`).
        """
        ...

    def observe(self, layer: int, experts: Sequence[int]) -> None:
        """What a layer was routed to; call before the `plan` of that step. Mutates what was learned."""
        ...


class Forecast(NamedTuple):
    """What one layer ahead is expected to choose."""

    layer: int
    predicted: Sequence[int]
    """Best first; empty where nothing can be said."""
    is_absent: Callable[[int], bool]


@runtime_checkable
class LayersAheadPrefetcher(Protocol):
    """A prefetcher that can look at more than the next layer. It is a Prefetcher too."""

    num_layers_ahead: int

    def plan_ahead(self, forecasts: Sequence[Forecast], window: Window | None) -> list[tuple[int, int]]:
        """The (layer, expert) pairs to submit, in order, nearest layer first.

        `forecasts`: of layers l+1, l+2, ... in order, as far as they were made.
        """
        ...


def make_prefetcher(name: str, depth: int) -> Prefetcher:
    """The prefetcher called `name`. Raises ValueError for an unknown name.

    `depth`: the experts fetched per layer; those that adapt use it until a window is measured.
    """
    if name not in _PREFETCHERS:
        raise ValueError(f"unknown prefetcher {name!r}: choose one of {', '.join(PREFETCH_NAMES)}")
    module, attribute = _PREFETCHERS[name]
    return cast(Prefetcher, getattr(importlib.import_module(module), attribute)(depth))
