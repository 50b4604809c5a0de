"""The lowest of some ranks: how every policy picks its victims once it has ranked the candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def lowest_ranked(ranks: Sequence[Any], num: int) -> list[int]:
    """Indices of the `num` lowest ranks, lowest first. Ranks are comparable and distinct."""
    if num == 1:
        return [ranks.index(min(ranks))]
    return sorted(range(len(ranks)), key=ranks.__getitem__)[:num]
