"""What policies are made from. Policies of one configuration share what is made here once."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from offload.geometry import Geometry
from offload.policies.routing_observer import RoutingObserver

if TYPE_CHECKING:
    from offload.policies.activations.collection import ActivationCollection
    from offload.policies.activations.tracker import ActivationTracker
    from offload.policies.eviction.history import HistoryWeights
    from offload.policies.forecast.selection_predictor import SelectionPredictor

Row = tuple[str, str, tuple[str, ...]]
"""A registry's row: module, class, and the names of the properties of PolicyInputs that it is made with."""


@dataclass(slots=True)
class PolicyInputs:
    """One configuration's."""

    geometry: Geometry
    depth: int = 1
    """Experts prefetched per step of a layer."""
    weights: HistoryWeights | None = None
    """Of history eviction; None: its defaults."""
    load_collection: Callable[[], ActivationCollection] | None = None
    """Gives past requests' matrices, where a policy goes by them; None: an empty collection."""
    load_predictor: Callable[[], SelectionPredictor | None] | None = None
    """Gives the model's trained predictor of selections, or None where there is none."""
    observers: list[RoutingObserver] = field(default_factory=list)
    """Must be told of all routing; filled as policies are made."""
    _activations: ActivationTracker | None = None

    @property
    def predictor(self) -> SelectionPredictor | None:
        """A trained predictor of selections; None where there is none."""
        return None if self.load_predictor is None else self.load_predictor()

    @property
    def activations(self) -> ActivationTracker:
        """Follows the running request; the same for all that ask."""
        if self._activations is None:
            from offload.policies.activations.collection import ActivationCollection
            from offload.policies.activations.tracker import ActivationTracker

            load = self.load_collection
            collection = ActivationCollection(self.geometry) if load is None else load()
            self._activations = ActivationTracker(self.geometry, collection)
            self.observers.append(self._activations)
        return self._activations


def make_policy(kind: str, registry: Mapping[str, Row], name: str, inputs: PolicyInputs) -> Any:
    """The policy of that name. Raises ValueError for an unknown one, naming those there are."""
    if name not in registry:
        raise ValueError(f"unknown {kind} {name!r}: choose one of {', '.join(registry)}")
    module, attribute, needed = registry[name]
    policy = getattr(importlib.import_module(module), attribute)(*(getattr(inputs, each) for each in needed))
    if isinstance(policy, RoutingObserver):
        inputs.observers.append(policy)
    return policy
