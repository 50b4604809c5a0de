"""What a prediction of router scores is off by on average: learned while decoding, and taken off."""

from __future__ import annotations

import torch

_EVERY_STEP = 16
"""Steps until which each is learned from."""
_STRIDE = 8
"""After that, each eighth: learning costs a router's product."""
_SLOWEST_RATE = 0.02


class ScoreShift:
    """The mean of (a layer's scores - those predicted for it from an earlier layer), per expert.

    The layers in between move the hidden state in much the same direction for every token, and the next router sees
    that move as a constant. Ours; the paper ("MoE-CORE: Coordinated Expert Offload", section "Mechanism") takes the
    prediction as it is. Used only while it finds at least as many of the experts as the plain prediction does.
    """

    def __init__(self, num_experts: int, top_k: int, stride: int = _STRIDE) -> None:
        """`stride`: once settled, each such step is learned from."""
        self._mean = torch.zeros(1, num_experts)
        self._top_k, self._stride = top_k, stride
        self._num_steps = self._num_seen = 0
        self._plain_hits = self._shifted_hits = 0.0
        self._plain: torch.Tensor | None = None

    @property
    def is_used(self) -> bool:
        """Whether predictions are shifted now."""
        return self._num_seen > 0 and self._shifted_hits >= self._plain_hits

    def apply(self, scores: torch.Tensor) -> torch.Tensor:
        """The prediction, shifted: float32 [1, experts] both. Remembered for `learn`."""
        self._plain = scores
        return scores + self._mean if self.is_used else scores

    def take_due(self) -> bool:
        """Counts a step of the layer: whether there is a prediction that `learn` is to be told the outcome of now.

        One that is not due is forgotten.
        """
        if self._plain is None:
            return False
        self._num_steps += 1
        if self._num_steps <= _EVERY_STEP or self._num_steps % self._stride == 0:
            return True
        self._plain = None
        return False

    def learn(self, scores: torch.Tensor) -> None:
        """What the layer scored in truth, float32 [1, experts], for the prediction last made."""
        plain, self._plain = self._plain, None
        assert plain is not None, "something was predicted"
        self._num_seen += 1
        rate = max(1 / self._num_seen, _SLOWEST_RATE)
        chosen = set(scores.topk(self._top_k)[1][0].tolist())
        self._plain_hits += rate * (self._hits(plain, chosen) - self._plain_hits)
        self._shifted_hits += rate * (self._hits(plain + self._mean, chosen) - self._shifted_hits)
        self._mean.lerp_(scores - plain, rate)

    def _hits(self, scores: torch.Tensor, chosen: set[int]) -> int:
        return len(chosen.intersection(scores.topk(self._top_k)[1][0].tolist()))
