"""What the policies themselves hold in memory, which is part of the plan."""

from __future__ import annotations

from engine.profiles.predictor_store import PredictorStore
from offload.geometry import Geometry
from offload.policies.activations.collection import CAPACITY
from offload.strategy.bundle import Strategy


def policy_bytes(policies: Strategy, geometry: Geometry, fingerprint: str) -> int:
    """Bytes of past requests' matrices, and of the predictor of selections with the tables made of it, or of what is
    counted without one."""
    widest = max((layer.num_experts for layer in geometry.layers), default=0)
    num_bytes = 0
    if "activation" in (policies.eviction, policies.prefetch):
        num_bytes += geometry.num_layers * (widest * (CAPACITY * 8 + 32) + 4 * CAPACITY)
    if policies.prefetch == "next-step":
        counted = geometry.num_layers * widest * widest * 4
        num_bytes += max(counted, 2 * PredictorStore(fingerprint, geometry).largest_bytes())
    return num_bytes
