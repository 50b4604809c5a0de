"""Activation matrices out of recorded routing, and what it costs to match them."""

from __future__ import annotations

from time import perf_counter

import numpy as np

from offload.policies.activations.collection import ActivationCollection
from offload.policies.activations.tracker import ActivationTracker
from offload.replay.trace import RoutingTrace


def request_matrices(trace: RoutingTrace) -> list[np.ndarray]:
    """Of every recorded prompt that was answered: tokens per expert in decode, int64 [layers, experts]."""
    matrices = []
    for number in range(trace.num_prompts):
        counts = trace.with_prompts([number]).decode_only().selection_mask().sum(axis=0)
        if counts.any():
            matrices.append(counts.astype(np.int64))
    return matrices


def match_cost_s(trace: RoutingTrace, collection: ActivationCollection) -> float:
    """Mean seconds a token that following and matching its routing takes; the collection is not changed."""
    tracker = ActivationTracker(trace.geometry, collection)
    decode = trace.decode_only()
    rows = [decode.experts_by_step(layer) for layer in range(trace.geometry.num_layers)]
    ones = [(1,) * layer.top_k for layer in trace.geometry.layers]
    tracker.begin_request()
    began_s = perf_counter()
    for step in range(decode.num_steps):
        tracker.begin_iteration(is_decode=True)
        for layer, experts in enumerate(rows):
            tracker.routed(layer, experts[step], ones[layer][: len(experts[step])])
    return (perf_counter() - began_s) / max(decode.num_steps, 1)
