"""No prediction: every expert of the next layer."""

from __future__ import annotations

from offload.geometry import Geometry


class WholeLayerForecaster:
    """A Forecaster that names every expert, in their order; of the next token's first layer too."""

    def __init__(self, geometry: Geometry) -> None:
        self._experts = [list(range(layer.num_experts)) for layer in geometry.layers]

    def can_predict(self, layer: int, ahead: int) -> bool:
        """See Forecaster."""
        return layer != ahead

    def predict(self, layer: int, ahead: int) -> list[int]:
        """See Forecaster."""
        return self._experts[ahead]

    def learn(self, layer: int) -> None:
        """See Forecaster; there is nothing to learn."""
