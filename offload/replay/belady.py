"""Bounds on loads: what a cache that knows the future would copy.

After L. A. Belady, "A Study of Replacement Algorithms for a Virtual-Storage Computer" (IBM Systems Journal 5(2), 1966),
section on the MIN algorithm: keep the experts whose next use is soonest. With bypass: an expert just used need not
be kept either. All experts of a step are used at the same time.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from typing import Final

import numpy as np

from offload.replay.trace import NO_EXPERT, RoutingTrace, max_experts

NEVER: Final = 2**62
"""The time of the next use where there is none."""


def next_uses(ids: np.ndarray, num_experts: int) -> tuple[np.ndarray, np.ndarray]:
    """When experts are used again. `ids` uint16 [steps, layers, k], with NO_EXPERT.

    Time counts layers: step * layers + layer. Returns (int64 [steps, layers, k]: the time of the next use of each
    chosen expert, int64 [layers, num_experts]: that of the first use), NEVER where there is none.
    """
    num_steps, num_layers, _ = ids.shape
    following = np.full(ids.shape, NEVER, np.int64)
    first = np.full((num_layers, num_experts), NEVER, np.int64)
    steps, layers, ranks = np.nonzero(ids != NO_EXPERT)
    experts = ids[steps, layers, ranks].astype(np.int64)
    times = steps * num_layers + layers
    names = layers * num_experts + experts
    order = np.argsort(names * (num_steps * num_layers + 1) + times, kind="stable")
    is_again = names[order][1:] == names[order][:-1]
    before, after = order[:-1][is_again], order[1:][is_again]
    following[steps[before], layers[before], ranks[before]] = times[after]
    is_first = np.ones(len(order), bool)
    is_first[1:] = ~is_again
    first[layers[order[is_first]], experts[order[is_first]]] = times[order[is_first]]
    return following, first


def belady_pool_loads(
    trace: RoutingTrace, slots_per_layer: Sequence[int], initial: Sequence[Collection[int]] | None = None
) -> int:
    """The fewest loads any policy can do with one pool of the same bytes for all layers, bypass allowed.

    Decode steps only. `initial[l]`: experts of layer l resident at the start. Exact where all layers have slots of the
    same size; else the pool is counted in slots of the smallest, and what is returned is below the fewest. Raises
    ValueError when more is resident at the start than the pool holds.
    """
    layers = trace.geometry.layers
    pool_bytes = sum(n * layer.slot_bytes for n, layer in zip(slots_per_layer, layers, strict=True))
    num_slots = pool_bytes // min((layer.slot_bytes for layer in layers), default=1)
    return _loads(trace.decode_only().ids, max_experts(trace.geometry), num_slots, initial)


def belady_layer_loads(
    trace: RoutingTrace, slots_per_layer: Sequence[int], initial: Sequence[Collection[int]] | None = None
) -> tuple[int, ...]:
    """Per layer, the fewest loads any policy can do with that layer's slots, bypass allowed. Else as
    `belady_pool_loads`."""
    ids = trace.decode_only().ids
    loads = []
    for layer, (shape, num_slots) in enumerate(zip(trace.geometry.layers, slots_per_layer, strict=True)):
        resident = None if initial is None else [initial[layer]]
        loads.append(_loads(ids[:, layer : layer + 1], shape.num_experts, num_slots, resident))
    return tuple(loads)


def _loads(ids: np.ndarray, num_experts: int, num_slots: int, initial: Sequence[Collection[int]] | None) -> int:
    """Loads of one pool. The heap holds (minus the next use, name); an entry that is not `use_of`'s is out of date."""
    num_steps, num_layers, k = ids.shape
    following, first = next_uses(ids, num_experts)
    first_uses = first.reshape(-1).tolist()
    held = [at * num_experts + expert for at, experts in enumerate(initial or ()) for expert in experts]
    if len(held) > num_slots:
        raise ValueError(f"{len(held)} experts are resident at the start, in a pool of {num_slots}")
    use_of = {name: first_uses[name] for name in held}
    heap = [(-use, name) for name, use in use_of.items()]
    heapq.heapify(heap)
    events = num_steps * num_layers
    names = (ids.astype(np.int64) + (np.arange(num_layers) * num_experts)[:, None]).reshape(events, k)
    chosen = (ids != NO_EXPERT).reshape(events, k).sum(axis=1).tolist()
    num_loads = 0
    for row, uses, num_chosen in zip(names.tolist(), following.reshape(events, k).tolist(), chosen, strict=True):
        for name, use in zip(row[:num_chosen], uses, strict=False):
            num_loads += name not in use_of
            use_of[name] = use
            heapq.heappush(heap, (-use, name))
        while len(use_of) > num_slots:
            use, name = heapq.heappop(heap)
            if use_of.get(name) == -use:
                del use_of[name]
    return num_loads
