"""Looking one layer ahead: the real router of the next MoE layer, run on this layer's hidden state.

Where a router gets its input is discovered on a warm-up forward: the norm whose output *is* the router's input. The
prediction at layer l is `router[l+1](norm[l+1](x))`, x being what layer l's own feeding norm got: the residual after
attention. Source: MoE-CORE, "Mechanism" (the original router of layer l+1 evaluated on layer l's hidden state).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass(slots=True)
class RouterFeed:
    """A router, the norm that feeds it (None: fed by the residual itself), and the extra arguments it is called with."""

    router: nn.Module
    norm: nn.Module | None
    input_dim: int
    """Dimensions of the router's input: 2 when the block flattens tokens before it."""
    extra_args: tuple[Any, ...]
    extra_kwargs: dict[str, Any]


def find_router(model: nn.Module, experts_name: str) -> nn.Module | None:
    """The router beside an experts module: the child of its parent block named gate or router."""
    parent = model.get_submodule(experts_name.rpartition(".")[0])
    for name in ("gate", "router"):
        child = getattr(parent, name, None)
        if isinstance(child, nn.Module):
            return child
    return None


class FeedProbe:
    """Watches one forward and says where each router's input came from. Use as a context around it."""

    def __init__(self, model: nn.Module, routers: Sequence[nn.Module | None]) -> None:
        self._model, self._routers = model, routers
        self._normed: list[tuple[nn.Module, torch.Tensor]] = []
        self._feeds: dict[int, RouterFeed] = {}
        self._handles: list[Any] = []

    def __enter__(self) -> FeedProbe:
        for module in self._model.modules():
            if "norm" in type(module).__name__.lower() and not list(module.children()):
                self._handles.append(module.register_forward_hook(self._on_norm))
        for router in self._routers:
            if router is not None:
                self._handles.append(router.register_forward_pre_hook(self._on_router, with_kwargs=True))
        return self

    def __exit__(self, *exc: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._normed.clear()

    def _on_norm(self, module: nn.Module, args: Any, output: Any) -> None:
        if isinstance(output, torch.Tensor):
            self._normed.append((module, output))

    def _on_router(self, router: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not args:
            return
        same = [m for m, output in self._normed if output.data_ptr() == args[0].data_ptr() and output.numel() == args[0].numel()]
        self._feeds[id(router)] = RouterFeed(router, same[-1] if same else None, args[0].dim(), args[1:], kwargs)

    def feeds(self) -> list[RouterFeed | None]:
        """One per router; None where it was not called or gets arguments that change with every token."""
        return [self._feed(router) for router in self._routers]

    def _feed(self, router: nn.Module | None) -> RouterFeed | None:
        feed = self._feeds.get(id(router))
        if feed is None:
            return None
        extra = [value for value in (*feed.extra_args, *feed.extra_kwargs.values()) if isinstance(value, torch.Tensor)]
        return feed if all(self._is_weight(value) for value in extra) else None

    def _is_weight(self, value: torch.Tensor) -> bool:
        return any(value is own for own in (*self._model.parameters(), *self._model.buffers()))


class Lookahead:
    """Predicts the experts of the next MoE layer from the hidden state at this one.

    Hooks stay on the feeding points for the model's life: they keep references, they compute nothing.
    """

    def __init__(self, feeds: Sequence[RouterFeed | None]) -> None:
        self._feeds = feeds
        self._inputs: list[torch.Tensor | None] = [None] * len(feeds)
        for layer, feed in enumerate(feeds):
            if feed is not None:
                (feed.norm or feed.router).register_forward_pre_hook(self._keeper(layer))
        self._forwards = [self._plain_forward(feed) for feed in feeds]

    def _keeper(self, layer: int) -> Callable[[nn.Module, tuple[torch.Tensor, ...]], None]:
        inputs = self._inputs

        def keep(module: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
            inputs[layer] = args[0]

        return keep

    @staticmethod
    def _plain_forward(feed: RouterFeed | None) -> Callable[[torch.Tensor], Any] | None:
        """`router(norm(hidden))` without the hooks that calling the modules would set off."""
        if feed is None:
            return None
        router, args, kwargs = feed.router.forward, feed.extra_args, feed.extra_kwargs
        normed = feed.norm.forward if feed.norm is not None else None
        is_flat = feed.input_dim == 2

        def forward(hidden: torch.Tensor) -> Any:
            fed = normed(hidden) if normed is not None else hidden
            return router(fed.view(-1, fed.shape[-1]) if is_flat else fed, *args, **kwargs)

        return forward

    def disable_failing(self) -> None:
        """Asks for every prediction once, after a forward of one token, and drops those that do not work."""
        for layer in range(len(self._feeds) - 1):
            try:
                self.predict(layer)
            except Exception:  # whatever a router raises when it is called out of its block
                self._forwards[layer + 1] = None

    def can_predict(self, layer: int) -> bool:
        """Whether `predict(layer)` can say something about layer + 1."""
        return layer + 1 < len(self._feeds) and self._feeds[layer] is not None and self._forwards[layer + 1] is not None

    def predict(self, layer: int) -> list[int]:
        """The experts layer + 1 would choose for this token, most certain first. Call during layer's step only."""
        forward, hidden = self._forwards[layer + 1], self._inputs[layer]
        if forward is None or hidden is None:
            return []
        _, weights, indices = forward(hidden)
        experts: list[int] = indices.view(-1).tolist()
        if len(experts) <= 1:
            return experts
        scores: list[float] = weights.reshape(-1).tolist()
        if len(scores) != len(experts):
            return experts
        return [expert for _, expert in sorted(zip(scores, experts, strict=True), key=lambda pair: -pair[0])]
