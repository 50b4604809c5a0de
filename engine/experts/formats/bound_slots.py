"""Slots bound to a layer's format when they are first used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_MAX_BOUND = 1024
"""More are not kept: in a pool over all layers every layer meets every slot sooner or later."""


class BoundSlots(dict[int, Any]):
    """What a format's `bind` gave, by slot number."""

    def __init__(self, bind: Callable[[int], Any]) -> None:
        super().__init__()
        self._bind = bind

    def __missing__(self, slot: int) -> Any:
        if len(self) >= _MAX_BOUND:
            self.clear()
        bound = self[slot] = self._bind(slot)
        return bound
