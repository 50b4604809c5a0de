"""Moves slots from layers whose hit rate barely drops to layers whose hit rate rises most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from offload.geometry import Geometry
from offload.policies.slot_planning.curve import HitRateCurve

_SMALLEST_GAIN = 1e-9
"""Hits per token a move must win: less is rounding error, and moves might never end."""


@dataclass(frozen=True, slots=True)
class MoveRules:
    """When slots may move. The paper names the quantities and gives no values."""

    delta_k: int = 1
    """Slots a receiver gets at a time."""
    tau_low: float = 0.02
    """How far below the median a receiver's hit rate must be."""
    max_drop: float = 0.1
    """The most that a donor's hit rate may lose in one move (the paper: "barely drops"). Generous, since one of few
    slots is a large part; the receiver must still gain more, and the donor stay above the median."""

    def __post_init__(self) -> None:
        if self.delta_k < 1 or not 0 <= self.tau_low <= 1 or not 0 <= self.max_drop <= 1:
            raise ValueError(f"impossible rules of moving slots: {self}")


@dataclass(frozen=True, slots=True)
class Move:
    """One move, and why: hit rates by the curves, in [0, 1]."""

    donor: int
    donor_slots: int
    """Slots given up."""
    donor_rate_before: float
    donor_rate_after: float
    receiver: int
    receiver_slots: int
    """Slots won: as many as were given, unless the layers' experts differ in bytes."""
    receiver_rate_before: float
    receiver_rate_after: float
    median_rate: float
    """Over layers, before the move."""

    def __str__(self) -> str:
        return (
            f"layer {self.donor} gives {self.donor_slots} ({self.donor_rate_before:.1%} -> {self.donor_rate_after:.1%})"
            f" to layer {self.receiver}, which gets {self.receiver_slots}"
            f" ({self.receiver_rate_before:.1%} -> {self.receiver_rate_after:.1%}); median {self.median_rate:.1%}"
        )


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """Slots per layer, and the moves that led there, in order."""

    slots_per_layer: tuple[int, ...]
    moves: tuple[Move, ...]


def plan_nonuniform(
    geometry: Geometry,
    slots_per_layer: Sequence[int],
    curves: Sequence[HitRateCurve],
    rules: MoveRules | None = None,
    fewest: Sequence[int] | None = None,
) -> SlotPlan:
    """Move slots, from where they are, until no move helps. Never takes more bytes than there were.

    After "MoE-CORE: Coordinated Expert Offload", section "Mechanism": slots move in steps of delta-K from layers whose
    hit rate stays above the median and barely drops when shrunk, to layers at least tau_low below the median whose hit
    rate rises the most when grown. A layer keeps `fewest` slots (by default k + 1) and gets no more than it has
    experts. Every move must also win more hits per token (k times the hit rate) than it costs, so that moving comes to
    an end. Among equals the lower layer is taken. Raises ValueError when the numbers of layers differ.
    """
    fewest = fewest or [layer.min_slots for layer in geometry.layers]
    state = _State(geometry, slots_per_layer, curves, rules or MoveRules(), fewest)
    moves = []
    while (move := state.best_move()) is not None:
        state.make(move)
        moves.append(move)
    return SlotPlan(tuple(state.slots), tuple(moves))


class _State:
    def __init__(
        self,
        geometry: Geometry,
        slots_per_layer: Sequence[int],
        curves: Sequence[HitRateCurve],
        rules: MoveRules,
        fewest: Sequence[int],
    ) -> None:
        if not geometry.num_layers == len(slots_per_layer) == len(curves) == len(fewest):
            raise ValueError(f"{geometry.num_layers} layers, {len(slots_per_layer)} slot counts, {len(curves)} curves")
        self.slots = list(slots_per_layer)
        self._layers, self._curves, self._rules, self._fewest = geometry.layers, curves, rules, fewest
        self._spare_bytes = 0

    def best_move(self) -> Move | None:
        """The move that raises its receiver's hit rate most, from the donor that loses least."""
        rates = [curve.at(slots) for curve, slots in zip(self._curves, self.slots, strict=True)]
        middle = median(rates) if rates else 0.0
        for receiver in self._receivers(rates, middle):
            moves = [self._move(donor, receiver, rates, middle) for donor in range(len(rates)) if donor != receiver]
            possible = [move for move in moves if move is not None]
            if possible:
                return min(possible, key=lambda move: self._lost_hits(move))
        return None

    def make(self, move: Move) -> None:
        self.slots[move.donor] -= move.donor_slots
        self.slots[move.receiver] += move.receiver_slots
        self._spare_bytes += move.donor_slots * self._layers[move.donor].slot_bytes
        self._spare_bytes -= move.receiver_slots * self._layers[move.receiver].slot_bytes

    def _receivers(self, rates: list[float], middle: float) -> list[int]:
        """Layers that may grow, the one that gains most first."""
        low = [
            layer
            for layer, rate in enumerate(rates)
            if rate <= middle - self._rules.tau_low and self.slots[layer] < self._layers[layer].num_experts
        ]
        return sorted(low, key=lambda layer: (rates[layer] - self._grown_rate(layer), layer))

    def _growth(self, layer: int) -> int:
        return min(self._rules.delta_k, self._layers[layer].num_experts - self.slots[layer])

    def _grown_rate(self, layer: int) -> float:
        return self._curves[layer].at(self.slots[layer] + self._growth(layer))

    def _move(self, donor: int, receiver: int, rates: list[float], middle: float) -> Move | None:
        """The move between the two, None when the rules forbid it."""
        growth = self._growth(receiver)
        missing_bytes = growth * self._layers[receiver].slot_bytes - self._spare_bytes
        given = max(1, -(-missing_bytes // self._layers[donor].slot_bytes))
        left = self.slots[donor] - given
        if left < self._fewest[donor]:
            return None
        move = Move(
            donor,
            given,
            rates[donor],
            self._curves[donor].at(left),
            receiver,
            growth,
            rates[receiver],
            self._grown_rate(receiver),
            middle,
        )
        won = self._layers[receiver].top_k * (move.receiver_rate_after - move.receiver_rate_before)
        is_allowed = (
            move.donor_rate_after >= middle
            and move.donor_rate_before - move.donor_rate_after <= self._rules.max_drop
            and won > self._lost_hits(move) + _SMALLEST_GAIN
        )
        return move if is_allowed else None

    def _lost_hits(self, move: Move) -> float:
        return self._layers[move.donor].top_k * (move.donor_rate_before - move.donor_rate_after)
