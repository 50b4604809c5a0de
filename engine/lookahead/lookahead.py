"""Looking ahead: the real router of a later MoE layer, run on this layer's hidden state.

Where a router gets its input is discovered on a warm-up forward: the norm whose output *is* the router's input. The
prediction at layer l is `router[l+1](norm[l+1](x))`, x being what layer l's own feeding norm got: the residual after
attention. Source: MoE-CORE, "Mechanism" (the original router of layer l+1 evaluated on layer l's hidden state). What
it is off by on average is learned and taken off (`ScoreShift`). `moe-chat bench prediction` measures the other hidden
states one could ask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from engine.lookahead.correction import ScoreShift
from engine.lookahead.ranking import RouterRanking, find_ranking, fold_norm, short_norm


@dataclass(slots=True)
class RouterFeed:
    """A router, the norm that feeds it (None: fed by the residual itself), and its other arguments."""

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
        extra = [value for value in (*feed.extra_args, *feed.extra_kwargs.values()) if isinstance(value, torch.Tensor)]
        return feed if all(self._is_weight(value) for value in extra) else None

    def _is_weight(self, value: torch.Tensor) -> bool:
        return any(value is own for own in (*self._model.parameters(), *self._model.buffers()))


@dataclass(slots=True)
class Predictor:
    """What the router of one layer would choose for a hidden state, a token [..., hidden], of an earlier layer."""

    normed: Callable[[torch.Tensor], torch.Tensor]
    ranking: RouterRanking | None
    """The short form of the router's choice; None: the router itself is asked."""
    ask: Callable[[torch.Tensor], Any]
    """The router: normed hidden -> (logits, weights, indices)."""
    folded: Callable[[torch.Tensor], torch.Tensor] | None = None
    """Scores without the norm's own step, where that can be had."""

    def scores(self, hidden: torch.Tensor) -> torch.Tensor:
        """float32 [1, experts]; only with a ranking."""
        assert self.ranking is not None, "scores need the short form"
        if self.folded is not None:
            return self.folded(hidden)
        return self.ranking.scores(self.normed(hidden).view(1, -1))

    def choose(self, hidden: torch.Tensor, shift: ScoreShift | None = None) -> list[int]:
        """The experts, most certain first."""
        if self.ranking is None:
            return _by_weight(*self.ask(self.normed(hidden))[1:])
        scores = self.scores(hidden)
        experts: list[int] = self.ranking.best(scores if shift is None else shift.apply(scores))
        return experts


class Lookahead:
    """Predicts the experts of later MoE layers from the hidden state at this one.

    Hooks stay on the feeding points for the model's life: they keep references, they compute nothing.
    """

    def __init__(self, feeds: Sequence[RouterFeed | None]) -> None:
        self._feeds = feeds
        self.inputs: list[torch.Tensor | None] = [None] * len(feeds)
        """Per layer, what its feeding norm got in the running or last forward, if that was of one token: the residual
        after attention."""
        self.predictors: list[Predictor | None] = [None] * len(feeds)
        """Per layer; None where nothing can be said."""
        self._shifts: list[dict[int, ScoreShift]] = [{} for _ in feeds]
        """Per layer predicted, by the layer it was predicted from."""
        for layer, feed in enumerate(feeds):
            if feed is not None:
                (feed.norm or feed.router).register_forward_pre_hook(self._keeper(layer))

    def _keeper(self, layer: int) -> Callable[[nn.Module, tuple[torch.Tensor, ...]], None]:
        inputs = self.inputs

        def keep(module: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
            is_one_token = args[0].numel() == args[0].shape[-1]
            inputs[layer] = args[0] if is_one_token else None

        return keep

    def prepare(self) -> None:
        """Builds the predictors; call after a forward of one token. What a router refuses out of its block is left
        out."""
        for layer, feed in enumerate(self._feeds):
            hidden = self.inputs[layer]
            if feed is None or hidden is None:
                continue
            try:
                predictor = _predictor(feed, hidden)
                predictor.choose(hidden)
            except Exception:  # noqa: BLE001 - whatever a router raises when it is called out of its block
                continue
            self.predictors[layer] = predictor

    @property
    def rankings(self) -> list[RouterRanking | None]:
        """Per layer, the short form of its router's choice; None where there is none."""
        return [None if predictor is None else predictor.ranking for predictor in self.predictors]

    def can_predict(self, layer: int, ahead: int) -> bool:
        """Whether `predict(layer, ahead)` can say something."""
        return self._feeds[layer] is not None and self.predictors[ahead] is not None

    def predict(self, layer: int, ahead: int) -> list[int]:
        """The experts layer `ahead` would choose for this token as it is at `layer`, most certain first.

        Call during the layer's step only; empty where nothing can be said.
        """
        predictor, hidden = self.predictors[ahead], self.inputs[layer]
        if predictor is None or hidden is None:
            return []
        return predictor.choose(hidden, self._shift(layer, ahead, predictor.ranking))

    def _shift(self, layer: int, ahead: int, ranking: RouterRanking | None) -> ScoreShift | None:
        shift = self._shifts[ahead].get(layer)
        if shift is None and ranking is not None:
            shift = self._shifts[ahead][layer] = ScoreShift(ranking.weight.shape[0], ranking.top_k)
        return shift

    def learn(self, layer: int) -> None:
        """The layer's own hidden state is there: what was predicted for it is compared with it."""
        due = [shift for shift in self._shifts[layer].values() if shift.take_due()]
        predictor, hidden = self.predictors[layer], self.inputs[layer]
        if due and predictor is not None and hidden is not None:
            scores = predictor.scores(hidden)
            for shift in due:
                shift.learn(scores)


def _predictor(feed: RouterFeed, sample: torch.Tensor) -> Predictor:
    """`ranking(norm(hidden))` for one token, by the short form where it agrees with the router."""
    normed = short_norm(feed.norm, sample) if feed.norm is not None else _unchanged
    hidden_dim, is_flat = sample.shape[-1], feed.input_dim == 2
    router = feed.router.forward

    def ask(hidden: torch.Tensor) -> Any:
        rows = hidden.view(-1, hidden_dim)
        return router(rows if is_flat else rows.unsqueeze(0), *feed.extra_args, **feed.extra_kwargs)

    extra = (*feed.extra_args, *feed.extra_kwargs.values())
    ranking = find_ranking(feed.router, extra, ask, normed(sample).view(-1, hidden_dim))
    folded = fold_norm(feed.norm, ranking, sample) if ranking is not None else None
    return Predictor(normed, ranking, ask, folded)


def _unchanged(hidden: torch.Tensor) -> torch.Tensor:
    return hidden


def _by_weight(weights: torch.Tensor, indices: torch.Tensor) -> list[int]:
    experts: list[int] = indices.reshape(-1).tolist()
    scores: list[float] = weights.reshape(-1).tolist()
    if len(scores) != len(experts):
        return experts
    return [expert for _, expert in sorted(zip(scores, experts, strict=True), key=lambda pair: -pair[0])]
