"""Runs the largest possible forward once, before expert slots are allocated, and measures the memory it takes.

The planned figure comes from shapes, and misses memory inside operations. The larger of the two figures is used.
"""

from __future__ import annotations

from engine.backends.transformers.decoder import Decoder
from engine.plan import machine
from engine.plan.model_plan import ChunkNeeds
from offload.budget import BudgetPlan

_UNSEEN_BYTES = 24 << 20
"""What a forward may take beyond its tensors, out of the plan's margin."""


def measure_workspace(decoder: Decoder, needs: ChunkNeeds, budget: BudgetPlan) -> int:
    """Bytes of workspace that the longest context needs, by one chunk at its end; at least what is planned.

    Experts return zeros meanwhile. The KV cache is empty afterwards. Where the system does not tell the peak of a
    process (it does on Linux), that is what is planned.
    """
    if not machine.reset_peak_rss():
        return budget.workspace_bytes
    before_bytes = machine.rss_bytes()
    length_tok = decoder.run_longest()
    taken_bytes = machine.peak_rss_bytes(since_reset=True) - before_bytes
    expected_bytes = needs.forward.at(length_tok)
    excess_bytes = taken_bytes - expected_bytes - _UNSEEN_BYTES
    if excess_bytes <= 0:
        return budget.workspace_bytes
    share = needs.forward.at(budget.context_tok) / max(expected_bytes, 1)
    return budget.workspace_bytes + int(excess_bytes * share)
