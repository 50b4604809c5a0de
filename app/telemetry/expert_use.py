"""Which experts were seen in use. States are looked at a few times a second, so this is a sample of the tokens."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.events import IN_USE, RESIDENT, SUBSTITUTE, Snapshot

HOT = 6
"""Code of a resident expert that was in use in a quarter of the last samples, and twice as often as the average one."""

WINDOW = 32
"""Samples that count as lately."""

_FEWEST_SAMPLES = 8
_HOT_SHARE = 0.25


@dataclass(slots=True)
class LayerUse:
    """The picks of one layer."""

    counts: list[int]
    """Samples in which each expert was in use, since the app watches."""
    recent: deque[tuple[int, ...]] = field(default_factory=lambda: deque(maxlen=WINDOW))
    """The experts in use in the last samples, oldest first."""
    num_samples: int = 0
    recent_counts: list[int] = field(default_factory=list)

    def see(self, codes: bytes) -> None:
        """Take in the layer's codes of one sample; nothing, where none was in use."""
        picked = experts_in_use(codes)
        if not picked:
            return
        if len(self.recent) == WINDOW:
            for expert in self.recent[0]:
                self.recent_counts[expert] -= 1
        self.recent.append(picked)
        self.num_samples += 1
        for expert in picked:
            self.counts[expert] += 1
            self.recent_counts[expert] += 1

    def mark_hot(self, codes: bytes) -> bytes:
        """The codes, with those resident experts that are hot told apart."""
        if len(self.recent) < _FEWEST_SAMPLES:
            return codes
        enough = max(_HOT_SHARE * len(self.recent), 2 * sum(self.recent_counts) / len(codes))
        if max(self.recent_counts) < enough:
            return codes
        return bytes(
            HOT if code == RESIDENT and count >= enough else code
            for code, count in zip(codes, self.recent_counts, strict=True)
        )


def experts_in_use(codes: bytes) -> tuple[int, ...]:
    """The experts picked for the token, and those that stood in for others."""
    if IN_USE not in codes and SUBSTITUTE not in codes:
        return ()
    return tuple(expert for expert, code in enumerate(codes) if code in (IN_USE, SUBSTITUTE))


class ExpertUse:
    """The use of every expert of every layer."""

    def __init__(self) -> None:
        self.layers: list[LayerUse] = []

    def see(self, snapshot: Snapshot) -> None:
        """Take in a state; only those of decoding tell of a token's experts."""
        sizes = [len(codes) for codes in snapshot.residency]
        if [len(layer.counts) for layer in self.layers] != sizes:
            self.layers = [LayerUse([0] * size, recent_counts=[0] * size) for size in sizes]
        if snapshot.phase == "decode":
            for layer, codes in zip(self.layers, snapshot.residency, strict=True):
                layer.see(codes)

    def mark_hot(self, residency: Sequence[bytes]) -> tuple[bytes, ...]:
        """The codes of every layer, with hot experts told apart; as they are, where no such layers were seen."""
        if [len(layer.counts) for layer in self.layers] != list(map(len, residency)):
            return tuple(residency)
        return tuple(layer.mark_hot(codes) for layer, codes in zip(self.layers, residency, strict=True))
