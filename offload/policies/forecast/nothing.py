"""No forecasts: for prefetchers that know by themselves what to fetch."""

from __future__ import annotations


class NothingForecaster:
    """A Forecaster that predicts nothing."""

    def can_predict(self, layer: int, ahead: int) -> bool:
        """See Forecaster."""
        return False

    def predict(self, layer: int, ahead: int) -> list[int]:
        """See Forecaster."""
        return []

    def learn(self, layer: int) -> None:
        """See Forecaster."""
