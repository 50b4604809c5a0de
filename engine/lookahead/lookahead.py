"""Looking ahead: the real router of a later MoE layer, run on this layer's hidden state.

The prediction at layer l is `router[l+1](norm[l+1](x))`, x being what layer l's own feeding norm got: the residual
after attention. Source: MoE-CORE, "Mechanism" (the original router of layer l+1 evaluated on layer l's hidden state).
Its mean error is learned and taken off (`MeanErrorCorrection`). `moe-chat bench prediction` measures the other hidden
states that could be used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from engine.lookahead.correction import MeanErrorCorrection
from engine.lookahead.feeds import RouterFeed
from engine.lookahead.forms import PredictionForm, Way
from engine.lookahead.predictor import Predictor, build_predictor
from engine.lookahead.ranking import RouterRanking

_CHANGING_INPUT = "its router also gets values that change with every token"


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
        """Per layer; None where nothing can be predicted."""
        self._why_not = [_CHANGING_INPUT if feed is None else "" for feed in feeds]
        self._corrections: list[dict[int, MeanErrorCorrection]] = [{} for _ in feeds]
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
        """Builds the predictors; call after a forward of one token. A router that cannot be called out of its block is
        left out."""
        for layer, feed in enumerate(self._feeds):
            hidden = self.inputs[layer]
            if feed is None or hidden is None:
                continue
            try:
                predictor = build_predictor(feed, hidden)
                predictor.choose(hidden)
            except Exception as error:  # noqa: BLE001 - whatever a router raises when it is called out of its block
                self._why_not[layer] = f"its router alone raises {type(error).__name__}"
                continue
            self.predictors[layer] = predictor

    @property
    def rankings(self) -> list[RouterRanking | None]:
        """Per layer, the short form of its router's choice; None where there is none."""
        return [None if predictor is None else predictor.ranking for predictor in self.predictors]

    def forms(self) -> list[PredictionForm]:
        """Per layer, how its experts are predicted."""
        return [self._form(layer, predictor) for layer, predictor in enumerate(self.predictors)]

    def _form(self, layer: int, predictor: Predictor | None) -> PredictionForm:
        if predictor is None:
            return PredictionForm(Way.NONE, reason=self._why_not[layer])
        if predictor.ranking is None:
            return PredictionForm(Way.ASKED, reason=predictor.why_slow)
        return PredictionForm(Way.SHORT, predictor.ranking.near_tie_rate)

    def can_predict(self, layer: int, ahead: int) -> bool:
        """Whether `predict(layer, ahead)` can say something."""
        return layer < ahead and self._feeds[layer] is not None and self.predictors[ahead] is not None

    def predict(self, layer: int, ahead: int) -> list[int]:
        """The experts layer `ahead` would choose for this token as it is at `layer`, most certain first.

        Call during the layer's step only; empty where nothing can be said. Keeps the prediction for `learn`.
        """
        predictor, hidden = self.predictors[ahead], self.inputs[layer]
        if predictor is None or hidden is None:
            return []
        return predictor.choose(hidden, self._correction(layer, ahead, predictor.ranking))

    def _correction(self, layer: int, ahead: int, ranking: RouterRanking | None) -> MeanErrorCorrection | None:
        correction = self._corrections[ahead].get(layer)
        if correction is None and ranking is not None:
            correction = MeanErrorCorrection(ranking.best_of_logits)
            self._corrections[ahead][layer] = correction
        return correction

    def learn(self, layer: int) -> None:
        """The layer's own hidden state is there: compares with it what was predicted for the layer."""
        due = [correction for correction in self._corrections[layer].values() if correction.count_step()]
        predictor, hidden = self.predictors[layer], self.inputs[layer]
        if due and predictor is not None and hidden is not None:
            logits = predictor.logits(hidden)
            for correction in due:
                correction.learn(logits)
