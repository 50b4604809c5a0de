"""How a router's experts will be predicted, told before a weight is read: by a copy of it with random weights.

Whether there is a short form is decided by what the router computes, not by the values of its weights; the share of
near-ties is that of random weights.
"""

from __future__ import annotations

import copy
import inspect

import torch
from torch import nn

from engine.lookahead.feeds import RouterFeed
from engine.lookahead.forms import PredictionForm, Way
from engine.lookahead.ranking_search import Found, find_ranking

_SPREAD = 0.1
"""Standard deviation of random biases: small against that of the logits, 1."""


def form_of_router(router: nn.Module | None, num_experts: int, hidden_dim: int, dtype: torch.dtype) -> PredictionForm:
    """The form of `router`, on the meta device or with its weights; it is not changed.

    Allocates a copy of the router for the time of the call where it is on the meta device.
    """
    if router is None:
        return PredictionForm(Way.NONE, reason="its block has no child named gate or router")
    if any(value.is_meta for value in (*router.parameters(), *router.buffers())):
        router = _with_random_weights(router)
    try:
        extra = _random_arguments(router, num_experts)
    except TypeError:
        return PredictionForm(Way.NONE, reason="its router also gets values that change with every token")
    sample = torch.randn(4, hidden_dim, generator=torch.Generator().manual_seed(1)).to(dtype)
    try:
        found = _found(router, extra, sample)
    except Exception as error:  # noqa: BLE001 - whatever a router raises when it is called out of its block
        return PredictionForm(Way.NONE, reason=f"its router alone raises {type(error).__name__}")
    if found.ranking is None:
        return PredictionForm(Way.ASKED, reason=found.reason)
    return PredictionForm(Way.SHORT, found.ranking.near_tie_rate)


def _found(router: nn.Module, extra: tuple[torch.Tensor, ...], sample: torch.Tensor) -> Found:
    """By tokens in rows, or as a batch of sequences where the router wants that."""
    with torch.inference_mode():
        try:
            return find_ranking(router, extra, RouterFeed(router, None, 2, extra, {}).ask, sample)
        except (ValueError, IndexError, RuntimeError):
            return find_ranking(router, extra, RouterFeed(router, None, 3, extra, {}).ask, sample)


def _with_random_weights(router: nn.Module) -> nn.Module:
    router = copy.deepcopy(router).to_empty(device="cpu")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for value in (*router.parameters(), *router.buffers()):
            if not value.is_floating_point():
                value.zero_()
                continue
            scale = value.shape[-1] ** -0.5 if value.dim() == 2 else _SPREAD
            value.copy_(torch.randn(value.shape, generator=generator) * scale)
    return router


def _random_arguments(router: nn.Module, num_experts: int) -> tuple[torch.Tensor, ...]:
    """A bias for every argument but the first. Raises TypeError where one is no bias."""
    names = list(inspect.signature(type(router).forward).parameters)[2:]
    if any("bias" not in name for name in names):
        raise TypeError("an argument that is no bias")
    generator = torch.Generator().manual_seed(2)
    return tuple(torch.randn(num_experts, generator=generator) * _SPREAD for _ in names)
