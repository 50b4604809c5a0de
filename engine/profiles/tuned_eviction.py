"""The eviction weights that a model runs with: the tuned ones stored for it, or the defaults."""

from __future__ import annotations

import time
from dataclasses import dataclass

from engine.profiles.store import ProfileStore
from offload.errors import WeightsError
from offload.policies.eviction.history import HistoryWeights
from offload.policies.eviction.tuned_weights import TunedWeights


@dataclass(frozen=True, slots=True)
class TunedEviction:
    """The tuned weights stored for a model, if there are any that can be used."""

    kept: TunedWeights | None
    problem: str = ""
    """Why the stored file cannot be used; the defaults are used instead."""

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
    """Reads the weights tuned for a model. Does not raise for a file that cannot be used: see `problem`."""
    try:
        return TunedEviction(ProfileStore(fingerprint).load_weights())
    except WeightsError as error:
        return TunedEviction(None, f"{error.message} The default weights are used. {error.hint}")
