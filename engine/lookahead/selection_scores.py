"""What a router hands to `topk`, recorded while the mode is active: the scores it ranks by."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class SelectionScores(TorchFunctionMode):
    """Keeps the input of the last `topk` that picked k of all experts: the selection scores, bias included."""

    def __init__(self, num_experts: int, top_k: int) -> None:
        super().__init__()
        self._num_experts, self._top_k = num_experts, top_k
        self.scores: torch.Tensor | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") == "topk":
            k = args[1] if len(args) > 1 else kwargs.get("k")
            if k == self._top_k and args and args[0].shape[-1] == self._num_experts:
                self.scores = args[0]
        return func(*args, **kwargs)
