"""Strategies: which policy decides what. The mechanism (cache, link, staging) never decides."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Strategy:
    """A bundle of plug-ins, by the names their registries know."""

    name: str
    prefill: str
    """How prefill gets experts that are not resident: `pipelined`, one after the other through the staging ring."""
    eviction: str
    prefetch: str
    substitution: str
    """Used in APPROX mode only."""


_STRATEGIES = {
    strategy.name: strategy
    for strategy in (
        Strategy("moe-core", "pipelined", "history", "router-ahead", "boundary"),
        Strategy("on-demand", "pipelined", "lru", "none", "none"),
        Strategy("lru", "pipelined", "lru", "none", "boundary"),
        Strategy("lfu", "pipelined", "lfu", "none", "boundary"),
    )
}

STRATEGY_NAMES = tuple(_STRATEGIES)
"""Names `make_strategy` knows; the first is the default."""


def make_strategy(name: str) -> Strategy:
    """The strategy called `name`. Raises ValueError for an unknown name."""
    if name not in _STRATEGIES:
        raise ValueError(f"unknown strategy {name!r}: choose one of {', '.join(STRATEGY_NAMES)}")
    return _STRATEGIES[name]
