"""Sources of forecasts: which experts a later layer is expected to choose. The back end's routers, asked early, are one
of several; the others are here, one a file, and go by routing alone."""

from __future__ import annotations

from typing import Final, Protocol, cast

from offload.policies.inputs import PolicyInputs, Row, make_policy

ROUTERS: Final = "routers"
"""Later layers' own routers on this layer's hidden state: the back end gives it."""
ACTIVATIONS, SELECTIONS, WHOLE_LAYER = "activations", "selections", "whole-layer"
"""Past requests' activation matrices, which a prefetcher reads by itself; what was selected so far; every expert."""

_REGISTRY: Final[dict[str, Row]] = {
    ACTIVATIONS: ("offload.policies.forecast.nothing", "NothingForecaster", ()),
    WHOLE_LAYER: ("offload.policies.forecast.whole_layer", "WholeLayerForecaster", ("geometry",)),
    SELECTIONS: ("offload.policies.forecast.selections", "SelectionForecaster", ("geometry", "predictor")),
}


class Forecaster(Protocol):
    """Predicts which experts a later layer will choose."""

    def can_predict(self, layer: int, ahead: int) -> bool:
        """Whether `predict(layer, ahead)` can give a prediction. `ahead` <= `layer` is a layer of the next token."""
        ...

    def predict(self, layer: int, ahead: int) -> list[int]:
        """The experts layer `ahead` is expected to choose, most certain first; predicted at `layer`."""
        ...

    def learn(self, layer: int) -> None:
        """Compare earlier predictions for `layer` with the layer's own scores, now that they are known."""
        ...


def forecaster_of(source: str, routers: Forecaster, inputs: PolicyInputs) -> Forecaster:
    """The source of that name; `routers`: the back end's. Raises ValueError for an unknown name."""
    if source == ROUTERS:
        return routers
    return cast(Forecaster, make_policy("source of forecasts", _REGISTRY, source, inputs))
