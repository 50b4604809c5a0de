"""Trains the predictor of the next layer's selection on recorded routing. torch is needed here and not to run it.

After "DuoServe-MoE: Dual-Phase Expert Prefetch", section "Mechanism": seven layers, batch norm, ReLU, dropout 0.1,
binary cross-entropy over the experts; input: the history of selected experts, their popularity, their affinity. Widths
are those of the paper, halved until an inference is short enough.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Final

import numpy as np
import torch
from torch import nn

from engine.profiles.predictor_store import Trained
from offload.errors import ProfileError, WaitCancelled
from offload.geometry import Geometry
from offload.policies.forecast.selection_predictor import SelectionPredictor
from offload.replay.selection_statistics import accuracy_of, inference_cost_s, selection_statistics
from offload.replay.trace import NO_EXPERT, RoutingTrace

WIDTHS: Final = (2048, 1024, 512, 256, 128, 64)
"""Of the first layer; each next one has half of it, and not less than 64."""
_NUM_HIDDEN = 6
_DROPOUT = 0.1
_BATCH_STEPS = 48
_MAX_EPOCHS = 40
_PATIENCE = 4
"""Epochs without a lower loss on the held-out prompts until training ends."""
_SEED = 20


@dataclass(frozen=True, slots=True)
class TrainingRules:
    """How long it may take, and how long a prediction may."""

    max_s: float = 240.0
    max_inference_s: float | None = None
    """Of all layers of a token; None: the smallest width is taken."""


def train_predictor(
    trace: RoutingTrace,
    rules: TrainingRules,
    on_progress: Callable[[str, int, int], None],
    is_cancelled: Callable[[], bool],
) -> Trained:
    """Trains on four of five prompts, and measures on the fifth. Raises ProfileError for too few prompts or layers,
    WaitCancelled."""
    held_out = [number for number in range(trace.num_prompts) if number % 5 == 4] or [trace.num_prompts - 1]
    trained_on = [number for number in range(trace.num_prompts) if number not in held_out]
    if not trained_on or trace.geometry.num_layers < 2:
        raise ProfileError(
            "A predictor needs answers to two prompts at least, and two MoE layers.", "Record more prompts."
        )
    seen, unseen = (trace.with_prompts(numbers).decode_only() for numbers in (trained_on, held_out))
    popularity, affinity = selection_statistics(seen)
    torch.manual_seed(_SEED)
    width = _width_within(rules.max_inference_s, popularity, affinity, trace.geometry)
    network = _Network(popularity, affinity, width)
    _fit(network, seen, unseen, rules.max_s, on_progress, is_cancelled)
    predictor = network.folded()
    return Trained(predictor, accuracy_of(predictor, unseen), len(trained_on), len(held_out))


def _width_within(max_s: float | None, popularity: np.ndarray, affinity: np.ndarray, geometry: Geometry) -> int:
    """The largest width whose predictions of one token take no longer than that on this machine; the smallest where
    none does."""
    for width in WIDTHS[:-1] if max_s is not None else ():
        if inference_cost_s(_Network(popularity, affinity, width).folded(), geometry) <= (max_s or 0.0):
            return width
    return WIDTHS[-1]


class _Network(nn.Module):
    """The network in training; `folded` gives it as it is run."""

    def __init__(self, popularity: np.ndarray, affinity: np.ndarray, width: int) -> None:
        super().__init__()
        num_layers, num_experts = popularity.shape
        self.popularity, self.affinity = torch.from_numpy(popularity), torch.from_numpy(affinity)
        widths = [max(width >> step, WIDTHS[-1]) for step in range(_NUM_HIDDEN)]
        self.history = nn.Embedding(num_layers * num_experts + 1, width, padding_idx=num_layers * num_experts)
        nn.init.normal_(self.history.weight, std=0.1)
        with torch.no_grad():
            self.history.weight[-1] = 0
        self.layer = nn.Embedding(num_layers, width)
        self.from_affinity = nn.Linear(num_experts, width, bias=False)
        self.from_popularity = nn.Linear(num_experts, width)
        self.norms = nn.ModuleList(nn.BatchNorm1d(each) for each in widths)
        pairs = zip(widths, [*widths[1:], num_experts], strict=True)
        self.linears = nn.ModuleList(nn.Linear(first, second) for first, second in pairs)
        self.dropout = nn.Dropout(_DROPOUT)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """ids int64 [steps, layers, k], padded -> logits [steps * (layers - 1), experts] of layers 1, 2, ..."""
        num_layers, num_experts = self.popularity.shape
        steps = len(ids)
        is_real = ids >= 0
        places = torch.arange(num_layers)[:, None] * num_experts + ids
        rows = torch.where(is_real, places, num_layers * num_experts)
        history = self.history(rows).sum(dim=2).cumsum(dim=1)[:, :-1]
        follow = self.affinity[torch.arange(num_layers)[:, None], ids.clamp(min=0)] * is_real[..., None]
        affinity = follow.sum(dim=2)[:, :-1] / is_real.sum(dim=2)[:, :-1, None].clamp(min=1)
        inner = (
            history + self.from_affinity(affinity) + self.from_popularity(self.popularity)[1:] + self.layer.weight[1:]
        )
        inner = inner.reshape(steps * (num_layers - 1), -1)
        logits: torch.Tensor = inner
        for norm, linear in zip(self.norms, self.linears, strict=True):
            logits = linear(self.dropout(torch.relu(norm(logits))))
        return logits

    @torch.no_grad()
    def folded(self) -> SelectionPredictor:
        """The same function of one token, batch norm folded into the weights before it."""
        scales, shifts = [], []
        for norm in self.norms:
            assert isinstance(norm, nn.BatchNorm1d)
            assert norm.running_var is not None
            assert norm.running_mean is not None
            scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
            scales.append(scale)
            shifts.append(norm.bias - norm.running_mean * scale)
        fixed = self.from_popularity(self.popularity) + self.layer.weight
        weights, biases = [], []
        for number, linear in enumerate(self.linears):
            assert isinstance(linear, nn.Linear)
            weight, bias = linear.weight.t(), linear.bias + 0
            if number + 1 < len(scales):
                weight, bias = weight * scales[number + 1], bias * scales[number + 1] + shifts[number + 1]
            weights.append(_array(weight))
            biases.append(_array(bias))
        return SelectionPredictor(
            _array(self.history.weight[:-1] * scales[0]),
            _array(fixed * scales[0] + shifts[0]),
            _array(self.from_affinity.weight.t() * scales[0]),
            _array(self.popularity),
            _array(self.affinity),
            tuple(weights),
            tuple(biases),
        )


def _array(tensor: torch.Tensor) -> np.ndarray:
    return np.ascontiguousarray(tensor.detach().numpy().astype(np.float32))


def _fit(
    network: _Network,
    seen: RoutingTrace,
    unseen: RoutingTrace,
    max_s: float,
    on_progress: Callable[[str, int, int], None],
    is_cancelled: Callable[[], bool],
) -> None:
    """Trains until the held-out loss stops to fall or the time is over, and leaves the best state in place."""
    ids, held_out = _padded(seen), _padded(unseen)
    targets, held_out_targets = _targets(ids, network), _targets(held_out, network)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=1e-2)
    loss_of = nn.BCEWithLogitsLoss()
    best, best_loss, num_worse, began_s = copy.deepcopy(network.state_dict()), float("inf"), 0, perf_counter()
    for epoch in range(_MAX_EPOCHS):
        on_progress("training the predictor", epoch, _MAX_EPOCHS)
        network.train()
        for batch in torch.randperm(len(ids)).split(_BATCH_STEPS):
            if is_cancelled():
                raise WaitCancelled("Stopped.")
            if len(batch) * (ids.shape[1] - 1) < 2:
                continue
            optimizer.zero_grad()
            loss_of(network(ids[batch]), targets[batch].flatten(0, 1)).backward()
            optimizer.step()
        network.eval()
        with torch.no_grad():
            loss = float(loss_of(network(held_out), held_out_targets.flatten(0, 1)))
        num_worse = 0 if loss < best_loss else num_worse + 1
        if loss < best_loss:
            best, best_loss = copy.deepcopy(network.state_dict()), loss
        if num_worse >= _PATIENCE or perf_counter() - began_s > max_s:
            break
    network.load_state_dict(best)
    network.eval()
    on_progress("training the predictor", _MAX_EPOCHS, _MAX_EPOCHS)


def _padded(trace: RoutingTrace) -> torch.Tensor:
    """int64 [steps, layers, k], -1 where a layer chose fewer."""
    ids = trace.ids.astype(np.int64)
    return torch.from_numpy(np.where(trace.ids == NO_EXPERT, -1, ids))


def _targets(ids: torch.Tensor, network: _Network) -> torch.Tensor:
    """float32 [steps, layers - 1, experts]: 1 where layers 1, 2, ... selected the expert."""
    hot = torch.zeros(*ids.shape[:2], network.popularity.shape[1])
    hot.scatter_(2, ids.clamp(min=0), (ids >= 0).float())
    return hot[:, 1:]
