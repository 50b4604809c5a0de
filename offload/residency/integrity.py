"""Do the books of the expert cache agree with each other? For tests, and for a check after each answer in debugging."""

from __future__ import annotations

from collections.abc import Sequence

from offload.residency.books import ARRIVING, HOST, RESIDENT, Arrival, GroupBook, LayerBook


def check_books(groups: Sequence[GroupBook]) -> None:
    """Raise AssertionError, saying what is wrong, unless slots, states, locks and counts agree. Changes nothing."""
    for group in groups:
        _check_slots(group)
    for book in [book for group in groups for book in group.layers]:
        _check_states(book)
        _check_counts(book, [arrival for group in groups for arrival in group.arrivals.values()])


def _check_slots(group: GroupBook) -> None:
    """Every slot is empty, occupied or in flight, exactly one of them; no expert is in two slots."""
    filed = sorted([*group.free, *group.occupants, *group.arrivals])
    _require(filed == list(group.slots), f"slots {list(group.slots)} are filed as {filed}")
    experts = [*group.occupants.values(), *((a.layer, a.expert) for a in group.arrivals.values())]
    _require(len(set(experts)) == len(experts), f"an expert is in two slots: {sorted(experts)}")
    numbers = [book.layer for book in group.layers]
    for layer, expert in experts:
        _require(layer in numbers, f"expert {expert} of layer {layer} is in a slot of layers {numbers}")
    for lease in [lease for book in group.layers for lease in book.leases]:
        arrival = group.arrivals.get(lease.slot)
        if lease.copy is None:
            _require(lease.slot in group.occupants, f"slot {lease.slot} is leased and empty")
        elif not lease.copy.is_done:
            _require(arrival is not None and arrival.copy is lease.copy, f"slot {lease.slot} is leased and given away")


def _check_states(book: LayerBook) -> None:
    """Per expert: slot, arrival, ready lease, code and marks say the same."""
    group = book.group
    for expert, slot in enumerate(book.slot_of):
        name = f"expert {expert} of layer {book.layer}"
        arrival, ready = book.arrivals.get(expert), book.ready[expert]
        code = RESIDENT if slot >= 0 else ARRIVING if arrival else HOST
        _require(book.codes[expert] == code, f"{name} has code {book.codes[expert]}, not {code}")
        if slot >= 0:
            _require(arrival is None, f"{name} is resident and on its way")
            _require(group.occupants.get(slot) == (book.layer, expert), f"{name} is not in its slot {slot}")
            _require(bool(book.seen[expert]), f"{name} is resident and was never seen")
        if arrival is not None:
            _require(group.arrivals.get(arrival.slot) is arrival, f"{name} is not on its way into slot {arrival.slot}")
        is_plain = slot >= 0 and expert not in book.unused
        _require((ready is not None) == is_plain, f"{name} has a ready lease {ready}, unused {expert in book.unused}")
        _require(ready is None or ready == (slot, None), f"{name} in slot {slot} is leased as {ready}")
    _require(all(book.slot_of[e] >= 0 for e in book.unused), f"layer {book.layer}: an unused prefetch is not resident")
    residents = sum(occupant.layer == book.layer for occupant in group.occupants.values())
    _require(residents == sum(slot >= 0 for slot in book.slot_of), f"layer {book.layer} has {residents} residents")


def _check_counts(book: LayerBook, arrivals: Sequence[Arrival]) -> None:
    """The identities of Counters hold, and prefetches not judged yet are where they should be."""
    counters = book.tally.snapshot()
    met = counters.hits + counters.late + counters.misses + counters.substituted
    _require(counters.routed == met, f"layer {book.layer}: {counters.routed} routed, {met} accounted for")
    unjudged = len(book.unused) + sum(arrival.is_unjudged for arrival in book.arrivals.values())
    for arrival in arrivals:
        unjudged += arrival.previous is not None and arrival.previous.layer == book.layer and arrival.is_previous_unused
    in_flight = counters.prefetch_in_flight
    _require(in_flight == unjudged, f"layer {book.layer}: {in_flight} prefetches not judged, {unjudged} found")


def _require(is_right: bool, message: str) -> None:
    if not is_right:
        raise AssertionError(message)
