"""The mean error of a prediction of router logits: learned while decoding, and taken off."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.arrays import Array

_EVERY_STEP = 16
"""Steps until which each is learned from."""
_STRIDE = 8
"""After that, each eighth: learning costs a router's product."""
_SLOWEST_RATE = 0.02


class MeanErrorCorrection:
    """The mean of (a layer's logits - those predicted for it from an earlier layer), per expert.

    The layers in between move the hidden state in much the same direction for every token, and the next router sees
    that move as a constant in its logits, which are linear in the hidden state. (In a softmax over 64 and more experts
    it is none, and taking it off gains nothing.) Ours; the paper ("MoE-CORE: Coordinated Expert Offload", section
    "Mechanism") takes the prediction as it is. Used only while it finds at least as many of the experts as the plain
    prediction does.
    """

    def __init__(self, best: Callable[[Array], list[int]], stride: int = _STRIDE) -> None:
        """`best`: the experts that logits [1, experts] choose. `stride`: once settled, each such step is learned
        from."""
        self._mean: Array = 0.0
        self._best, self._stride = best, stride
        self._num_steps = self._num_seen = 0
        self._plain_hits = self._corrected_hits = 0.0
        self._plain: Array | None = None

    @property
    def is_used(self) -> bool:
        """Whether predictions are corrected now."""
        return self._num_seen > 0 and self._corrected_hits >= self._plain_hits

    def correct(self, logits: Array) -> Array:
        """The prediction, corrected: float32 [1, experts] both. Keeps `logits` for `learn`."""
        self._plain = logits
        return logits + self._mean if self.is_used else logits

    def keep(self, logits: np.ndarray) -> None:
        """As `correct`, of a prediction that is corrected by `shift` where it is made; copies what is to be learned
        from."""
        self._plain = logits.copy() if self._is_learned_from(self._num_steps + 1) else logits

    @property
    def shift(self) -> Array:
        """What is added to the next prediction, float32 [1, experts], or 0."""
        return self._mean if self.is_used else 0.0

    def count_step(self) -> bool:
        """Counts a step of the layer. True: call `learn` now with the outcome of the kept prediction. Forgets a
        prediction that is not to be learned from."""
        if self._plain is None:
            return False
        self._num_steps += 1
        if self._is_learned_from(self._num_steps):
            return True
        self._plain = None
        return False

    def learn(self, logits: Array) -> None:
        """The layer's real logits, float32 [1, experts], for the prediction kept last, which is forgotten."""
        plain, self._plain = self._plain, None
        assert plain is not None, "something was predicted"
        self._num_seen += 1
        rate = max(1 / self._num_seen, _SLOWEST_RATE)
        chosen = set(self._best(logits))
        self._plain_hits += rate * (self._hits(plain, chosen) - self._plain_hits)
        self._corrected_hits += rate * (self._hits(plain + self._mean, chosen) - self._corrected_hits)
        self._mean = self._mean + rate * (logits - plain - self._mean)

    def _is_learned_from(self, step: int) -> bool:
        return step <= _EVERY_STEP or step % self._stride == 0

    def _hits(self, logits: Array, chosen: set[int]) -> int:
        return len(chosen.intersection(self._best(logits)))
