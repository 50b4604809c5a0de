"""How often a predicted expert is used, by its place in the prediction: learned while decoding."""

from __future__ import annotations

from collections.abc import Collection, Sequence

_PRIOR_WEIGHT = 8.0
"""Observations the prior counts as."""
_PRIOR_FIRST = 0.7
_PRIOR_DECAY = 0.85
"""Before anything was seen: 0.7 for the first one, and 0.85 times that for each place further down or layer ahead."""


class RankHitRates:
    """Counts, by distance (1: the next layer) and place, the *absent* predicted experts that were then used.

    Resident ones are not counted: they are resident because they are used often, and would bias the rate upwards.
    """

    def __init__(self, num_distances: int = 1, num_ranks: int = 16) -> None:
        self._num_ranks = num_ranks
        priors = [
            [_PRIOR_FIRST * _PRIOR_DECAY ** (far + rank) for rank in range(num_ranks)] for far in range(num_distances)
        ]
        self._used = [[_PRIOR_WEIGHT * rate for rate in row] for row in priors]
        self._seen = [[_PRIOR_WEIGHT] * num_ranks for _ in priors]
        self._pending: dict[int, dict[int, list[tuple[int, int]]]] = {}
        """Layer -> distance -> [(rank, expert)]: predictions that wait for the layer's routing."""

    def rate(self, distance: int, rank: int) -> float:
        """The share, in (0, 1), of the absent experts predicted at this place that were used."""
        rank = min(rank, self._num_ranks - 1)
        return self._used[distance - 1][rank] / self._seen[distance - 1][rank]

    def expect(self, layer: int, distance: int, absent: Sequence[tuple[int, int]]) -> None:
        """Remember a prediction: the (rank, expert) pairs absent when it was made. An unjudged older one is dropped."""
        self._pending.setdefault(layer, {})[distance] = [pair for pair in absent if pair[0] < self._num_ranks]

    def observe(self, layer: int, experts: Collection[int]) -> None:
        """The layer's routing is known: judge what was expected of it."""
        for distance, absent in self._pending.pop(layer, {}).items():
            used, seen = self._used[distance - 1], self._seen[distance - 1]
            for rank, expert in absent:
                seen[rank] += 1
                used[rank] += expert in experts
