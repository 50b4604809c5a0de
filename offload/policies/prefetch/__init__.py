"""Prefetchers choose experts to copy before they are routed to; one per file. Pure: no tensors, no I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast

from offload.geometry import Geometry
from offload.policies.inputs import PolicyInputs, Row, make_policy

if TYPE_CHECKING:
    from offload.policies.prefetch.overlap_window import Window

_REGISTRY: Final[dict[str, Row]] = {
    "layers-ahead": ("offload.policies.prefetch.layers_ahead", "LayersAheadPrefetcher", ("depth",)),
    "router-ahead": ("offload.policies.prefetch.router_ahead", "RouterAheadPrefetcher", ("depth",)),
    "router-ahead-floor": ("offload.policies.prefetch.router_ahead_floor", "RouterAheadFloorPrefetcher", ("depth",)),
    "router-ahead-gain": ("offload.policies.prefetch.router_ahead_gain", "RouterAheadGainPrefetcher", ("depth",)),
    "layers-ahead-gain": ("offload.policies.prefetch.layers_ahead_gain", "LayersAheadGainPrefetcher", ("depth",)),
    "activation": ("offload.policies.prefetch.activation", "ActivationPrefetcher", ("depth", "activations")),
    "next-step": ("offload.policies.prefetch.next_step", "NextStepPrefetcher", ("geometry",)),
    "whole-layer": ("offload.policies.prefetch.whole_layer", "WholeLayerPrefetcher", ()),
    "none": ("offload.policies.prefetch.none", "NoPrefetcher", ()),
}

PREFETCHERS = tuple(_REGISTRY)
"""Names that `make_prefetcher` knows."""


class Forecast(NamedTuple):
    """What one layer ahead is expected to choose."""

    layer: int
    predicted: Sequence[int]
    """Best first; empty where nothing can be said."""
    is_absent: Callable[[int], bool]
    """Neither resident nor on its way."""


def _all_absent(layer: int, expert: int) -> bool:
    return True


@dataclass(slots=True)
class Outlook:
    """What a prefetcher may go by in one step of a layer."""

    forecasts: Iterable[Forecast] = ()
    """Of layers l+1, l+2, ... in order, by the configuration's source of forecasts; each is computed when the iteration
    reaches it, so that a prefetcher that stops early saves the rest."""
    window: Window | None = None
    """None where it is not measured (yet)."""
    layer: int = 0
    """The layer that runs: its routing is known."""
    is_absent: Callable[[int, int], bool] = _all_absent
    """(layer, expert) -> neither resident nor on its way."""
    count_in_flight: Callable[[], int] = int
    """Prefetches that have been submitted and have not landed, of all layers."""


class Prefetcher(Protocol):
    """Picks the experts of layers ahead to submit at prefetch priority."""

    num_layers_ahead: int
    """The most forecasts that `plan` reads; with 0 none need to be made."""
    needs_window: bool
    """Whether `plan` uses the window; if not, none needs to be measured."""
    source: str
    """Where its forecasts come from: `offload.policies.forecast`."""
    waits_for_first_expert: bool
    """Whether `plan` is asked once the layer's first experts are computed; else as soon as its routing is known."""

    def plan(self, outlook: Outlook) -> list[tuple[int, int]]:
        """The (layer, expert) pairs to submit, in order. A layer before the one that runs is the next token's."""
        ...

    def observe(self, layer: int, experts: Sequence[int]) -> None:
        """The experts a layer was routed to; call before the `plan` of that step. Mutates what was learned."""
        ...


def make_prefetcher(name: str, depth: int | PolicyInputs) -> Prefetcher:
    """The prefetcher called `name`. Raises ValueError for an unknown name.

    `depth`: the experts fetched per step of a layer; those that adapt use it until a window is measured. Policies of
    one configuration are made with the same PolicyInputs.
    """
    inputs = depth if isinstance(depth, PolicyInputs) else PolicyInputs(Geometry(()), depth)
    return cast(Prefetcher, make_policy("prefetcher", _REGISTRY, name, inputs))
