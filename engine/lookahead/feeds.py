"""Where each router gets its input from: discovered on one forward.

The feeding norm of a router is the norm whose output *is* the router's input, the same memory; a router without one is
fed with the residual stream itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass(slots=True)
class RouterFeed:
    """A router, the norm that feeds it (None: fed by the residual itself), and its other arguments."""

    router: nn.Module
    norm: nn.Module | None
    input_dim: int
    """Dimensions of the router's input: 2 when the block flattens tokens before it."""
    extra_args: tuple[Any, ...]
    extra_kwargs: dict[str, Any]

    @property
    def extra(self) -> tuple[Any, ...]:
        """The values of all arguments but the first."""
        return (*self.extra_args, *self.extra_kwargs.values())

    def ask(self, rows: torch.Tensor) -> Any:
        """What the router's own forward returns for its input `rows` [tokens, hidden]; no hook runs."""
        shaped = rows if self.input_dim == 2 else rows.unsqueeze(0)
        return self.router.forward(shaped, *self.extra_args, **self.extra_kwargs)


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
        same = [
            m
            for m, output in self._normed
            if output.data_ptr() == args[0].data_ptr() and output.numel() == args[0].numel()
        ]
        self._feeds[id(router)] = RouterFeed(router, same[-1] if same else None, args[0].dim(), args[1:], kwargs)

    def feeds(self) -> list[RouterFeed | None]:
        """One per router; None where it was not called or gets arguments that change with every token."""
        return [self._feed(router) for router in self._routers]

    def _feed(self, router: nn.Module | None) -> RouterFeed | None:
        feed = self._feeds.get(id(router))
        if feed is None:
            return None
        tensors = [value for value in feed.extra if isinstance(value, torch.Tensor)]
        return feed if all(self._is_weight(value) for value in tensors) else None

    def _is_weight(self, value: torch.Tensor) -> bool:
        return any(value is own for own in (*self._model.parameters(), *self._model.buffers()))
