"""Checks that the parts of the expert cache's state agree. For tests and debugging."""

from __future__ import annotations

from collections.abc import Sequence

from offload.residency.codes import HOST, LOADING, RESIDENT
from offload.residency.slot_state import Arrival, GroupState, LayerState


def check_slot_state(groups: Sequence[GroupState]) -> None:
    """Raise AssertionError, saying what is wrong, unless slots, states, locks and counts agree. Changes nothing."""
    for group in groups:
        _check_slots(group)
    for state in [state for group in groups for state in group.layers]:
        _check_states(state)
        _check_counts(state, [arrival for group in groups for arrival in group.arrivals.values()])


def _check_slots(group: GroupState) -> None:
    """Every slot is empty, occupied or in flight, exactly one of them; no expert is in two slots."""
    filed = sorted([*group.free, *group.occupants, *group.arrivals])
    _require(filed == list(group.slots), f"slots {list(group.slots)} are filed as {filed}")
    experts = [*group.occupants.values(), *((a.layer, a.expert) for a in group.arrivals.values())]
    _require(len(set(experts)) == len(experts), f"an expert is in two slots: {sorted(experts)}")
    numbers = [state.layer for state in group.layers]
    for layer, expert in experts:
        _require(layer in numbers, f"expert {expert} of layer {layer} is in a slot of layers {numbers}")
    for lease in [lease for state in group.layers for lease in state.leases]:
        arrival = group.arrivals.get(lease.slot)
        if lease.copy is None:
            _require(lease.slot in group.occupants, f"slot {lease.slot} is leased and empty")
        elif not lease.copy.is_done:
            _require(arrival is not None and arrival.copy is lease.copy, f"slot {lease.slot} is leased and given away")


def _check_states(state: LayerState) -> None:
    """Per expert: slot, arrival, hit lease, code and marks say the same."""
    group = state.group
    for expert, slot in enumerate(state.slot_of):
        name = f"expert {expert} of layer {state.layer}"
        arrival, hit_lease = state.arrivals.get(expert), state.hit_leases[expert]
        code = RESIDENT if slot >= 0 else LOADING if arrival else HOST
        _require(state.codes[expert] == code, f"{name} has code {state.codes[expert]}, not {code}")
        if slot >= 0:
            _require(arrival is None, f"{name} is resident and on its way")
            _require(group.occupants.get(slot) == (state.layer, expert), f"{name} is not in its slot {slot}")
            _require(bool(state.seen[expert]), f"{name} is resident and was never seen")
        if arrival is not None:
            _require(group.arrivals.get(arrival.slot) is arrival, f"{name} is not on its way into slot {arrival.slot}")
        is_plain = slot >= 0 and expert not in state.unused
        _require(
            (hit_lease is not None) == is_plain, f"{name} has a hit lease {hit_lease}, unused {expert in state.unused}"
        )
        _require(hit_lease is None or hit_lease == (slot, None), f"{name} in slot {slot} has hit lease {hit_lease}")
    _require(
        all(state.slot_of[e] >= 0 for e in state.unused), f"layer {state.layer}: an unused prefetch is not resident"
    )
    residents = sum(occupant.layer == state.layer for occupant in group.occupants.values())
    _require(residents == sum(slot >= 0 for slot in state.slot_of), f"layer {state.layer} has {residents} residents")


def _check_counts(state: LayerState, arrivals: Sequence[Arrival]) -> None:
    """The identities of Counters hold, and prefetches not judged yet are where they should be."""
    counters = state.counters
    met = counters.hits + counters.late + counters.misses + counters.substituted
    _require(counters.routed == met, f"layer {state.layer}: {counters.routed} routed, {met} accounted for")
    unjudged = len(state.unused) + sum(arrival.is_unjudged for arrival in state.arrivals.values())
    for arrival in arrivals:
        unjudged += (
            arrival.previous is not None and arrival.previous.layer == state.layer and arrival.is_previous_unused
        )
    in_flight = counters.prefetch_in_flight
    _require(in_flight == unjudged, f"layer {state.layer}: {in_flight} prefetches not judged, {unjudged} found")


def _require(is_right: bool, message: str) -> None:
    if not is_right:
        raise AssertionError(message)
