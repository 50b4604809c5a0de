"""Prefetchers choose experts to copy before they are routed to; one per file. Pure: no tensors, no I/O, no clock."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    from offload.policies.prefetch.overlap_window import Window

_REGISTRY = {
    "layers-ahead": ("offload.policies.prefetch.layers_ahead", "LayersAheadPrefetcher"),
    "router-ahead": ("offload.policies.prefetch.router_ahead", "RouterAheadPrefetcher"),
    "router-ahead-floor": ("offload.policies.prefetch.router_ahead_floor", "RouterAheadFloorPrefetcher"),
    "router-ahead-gain": ("offload.policies.prefetch.router_ahead_gain", "RouterAheadGainPrefetcher"),
    "layers-ahead-gain": ("offload.policies.prefetch.layers_ahead_gain", "LayersAheadGainPrefetcher"),
    "none": ("offload.policies.prefetch.none", "NoPrefetcher"),
}

PREFETCHERS = tuple(_REGISTRY)
"""Names that `make_prefetcher` knows; the first is the default."""


class Forecast(NamedTuple):
    """What one layer ahead is expected to choose."""

    layer: int
    predicted: Sequence[int]
    """Best first; empty where nothing can be said."""
    is_absent: Callable[[int], bool]
    """Neither resident nor on its way."""


class Prefetcher(Protocol):
    """Picks the experts of layers ahead to submit at prefetch priority."""

    num_layers_ahead: int
    """The most forecasts that `plan` reads; with 0 none need to be made."""
    needs_window: bool
    """Whether `plan` uses the window; if not, none needs to be measured."""

    def plan(self, forecasts: Iterable[Forecast], window: Window | None = None) -> list[tuple[int, int]]:
        """The (layer, expert) pairs to submit, in order, nearest layer first.

        `forecasts`: of layers l+1, l+2, ... in order; each is computed when the iteration reaches it, so that
        a prefetcher that stops early saves the rest. `window`: None where it is not measured (yet).
        """
        ...

    def observe(self, layer: int, experts: Sequence[int]) -> None:
        """The experts a layer was routed to; call before the `plan` of that step. Mutates what was learned."""
        ...


def make_prefetcher(name: str, depth: int) -> Prefetcher:
    """The prefetcher called `name`. Raises ValueError for an unknown name.

    `depth`: the experts fetched per step of a layer; those that adapt use it until a window is measured.
    """
    if name not in _REGISTRY:
        raise ValueError(f"unknown prefetcher {name!r}: choose one of {', '.join(PREFETCHERS)}")
    module, attribute = _REGISTRY[name]
    return cast(Prefetcher, getattr(importlib.import_module(module), attribute)(depth))
