"""Strategies: whole systems as bundles of the mechanism's plug-ins, one file each, chosen here.

A strategy only names plug-ins; nothing else in the program may ask which strategy it is (a test looks). Every part can
be overridden by an option. Light: the user interface imports it.
"""

from __future__ import annotations

import importlib
from typing import Final, cast

from offload.strategy.bundle import Strategy

_FILES: Final = {
    "moe-core": "moe_core",
    "moe-infinity": "moe_infinity",
    "duoserve": "duoserve",
    "on-demand": "on_demand",
    "no-cache": "no_cache",
    "layer-prefetch": "layer_prefetch",
    "lru": "lru",
    "lfu": "lfu",
}
STRATEGIES: Final = tuple(_FILES)
"""The names; the first is the default."""


def strategy_named(name: str) -> Strategy:
    """The bundle of that name. Raises ValueError for an unknown one."""
    if name not in _FILES:
        raise ValueError(f"unknown strategy {name!r}: choose one of {', '.join(STRATEGIES)}")
    return cast(Strategy, importlib.import_module(f"offload.strategy.{_FILES[name]}").STRATEGY)
