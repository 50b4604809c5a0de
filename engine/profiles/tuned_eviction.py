"""The eviction weights a model is run with: those tuned for it and kept, or the defaults."""

from __future__ import annotations

import time
from dataclasses import dataclass

from engine.profiles.store import ProfileStore
from offload.errors import WeightsError
from offload.policies.eviction.history import HistoryWeights
from offload.policies.eviction.tuned_weights import TunedWeights


@dataclass(frozen=True, slots=True)
class TunedEviction:
    """What was found where tuned weights are kept."""

    kept: TunedWeights | None
    problem: str = ""
    """Why what is there cannot be used; the defaults are, then."""

    @property
    def weights(self) -> HistoryWeights | None:
        """None: the defaults."""
        return self.kept.weights if self.kept is not None else None

    def __str__(self) -> str:
        """`tuned 2025-01-31 on 28 prompts`, or `default weights`."""
        if self.kept is None:
            return "default weights"
        day = time.strftime("%Y-%m-%d", time.localtime(self.kept.created_s))
        return f"tuned {day} on {self.kept.tuned_on.prompts} prompts"


def tuned_eviction(fingerprint: str) -> TunedEviction:
    """The weights tuned for a model. A file that cannot be used does not keep the model from loading."""
    try:
        return TunedEviction(ProfileStore(fingerprint).load_weights())
    except WeightsError as error:
        return TunedEviction(None, f"{error.message} The default weights are used. {error.hint}")
