"""Runs a long prefill forward once, before expert slots are allocated, and measures the memory it takes.

The planned figure comes from shapes, and misses memory inside operations. Where the measured one is larger than the
planned one for the same length, the workspace of the longest context grows by the same share. All layers at the longest
context would take seconds at every load; one of each kind is enough, and the first few hold every kind of attention.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from torch import nn

from engine.backends.transformers.decoder import Decoder
from engine.backends.transformers.experts_interface import LeavingLayer, ProbedLayer
from engine.backends.transformers.stored_weights import WithheldModule
from engine.plan import machine
from engine.plan.model_plan import ChunkNeeds
from offload.budget import BudgetPlan

_PAST_TOK = 768
"""Tokens cached before the chunk."""
_MAX_LAYERS = 6
"""MoE layers that are looked at: kinds of attention alternate in at most so many."""
_LAYER = re.compile(r".*?\.\d+(?=\.|$)")
_POSITIONS = {"layer_idx", "layer_index"}
_UNSEEN_BYTES = 24 << 20
"""What a forward may take beyond its tensors, out of the plan's margin."""


def measure_workspace(
    decoder: Decoder, model: nn.Module, modules: Sequence[WithheldModule], needs: ChunkNeeds, budget: BudgetPlan
) -> int:
    """Bytes of workspace that the longest context needs; at least what is planned.

    Experts return zeros meanwhile; the KV cache is empty afterwards. Where the system does not tell the peak of a
    process (it does on Linux), that is what is planned.
    """
    if not machine.reset_peak_rss():
        return budget.workspace_bytes
    before_bytes = machine.rss_bytes()
    length_tok = _run(decoder, modules[num_layers_to_try(model, [withheld.name for withheld in modules]) :])
    taken_bytes = machine.peak_rss_bytes(since_reset=True) - before_bytes
    expected_bytes = needs.forward.at(length_tok)
    excess_bytes = taken_bytes - expected_bytes - _UNSEEN_BYTES
    if excess_bytes <= 0:
        return budget.workspace_bytes
    share = needs.forward.at(budget.context_tok) / max(expected_bytes, 1)
    return budget.workspace_bytes + int(excess_bytes * share)


def _run(decoder: Decoder, behind: Sequence[WithheldModule]) -> int:
    """The length of the forward. It ends at the first of `behind`."""
    try:
        for withheld in behind:
            withheld.module.offload_layer = LeavingLayer()  # type: ignore[assignment]
        return decoder.run_at(_PAST_TOK)
    finally:
        for withheld in behind:
            withheld.module.offload_layer = ProbedLayer()  # type: ignore[assignment]


def num_layers_to_try(model: nn.Module, experts: Sequence[str]) -> int:
    """How many MoE layers hold one of each kind, and one more, by the names of their experts modules."""
    kinds = [_kind(model, name) for name in experts[:_MAX_LAYERS]]
    last_new = max((kinds.index(kind) for kind in kinds), default=0)
    return min(last_new + 2, _MAX_LAYERS)


def _kind(model: nn.Module, name: str) -> object:
    """What makes a decoder layer like another: its modules, their settings, and the shapes of their parameters."""
    found = _LAYER.match(name)
    if found is None:
        return name
    layer = model.get_submodule(found[0])
    settings = [
        (path, type(module).__name__, [(key, value) for key, value in vars(module).items() if _is_setting(key, value)])
        for path, module in layer.named_modules()
    ]
    return settings, [(key, parameter.shape) for key, parameter in layer.named_parameters()]


def _is_setting(key: str, value: object) -> bool:
    return key not in _POSITIONS and (value is None or isinstance(value, (bool, int, float, str)))
