"""The experts function registered with transformers, which the library calls in place of an experts module's own."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

EXPERTS_IMPLEMENTATION = "moe_chat_offload"


def offloaded_experts_forward(
    self: nn.Module, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
) -> torch.Tensor:
    """The experts interface: hidden [tokens, hidden], index and weights [tokens, k] -> [tokens, hidden]."""
    layer: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor] = self.offload_layer  # type: ignore[assignment]
    return layer(hidden_states, top_k_index, top_k_weights)


ALL_EXPERTS_FUNCTIONS.register(EXPERTS_IMPLEMENTATION, offloaded_experts_forward)


class ProbedLayer:
    """Replaces an experts module's layer while there are no slots: records k, and returns zeros."""

    def __init__(self) -> None:
        self.top_k: int | None = None

    def __call__(self, hidden: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        self.top_k = int(index.shape[-1])
        return torch.zeros_like(hidden)


class ForwardLeft(Exception):
    """A forward that only measures has run as many layers as it needs."""


class LeavingLayer:
    """Ends a forward that only measures, by raising ForwardLeft: what comes behind this layer is not run."""

    def __call__(self, hidden: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        raise ForwardLeft
