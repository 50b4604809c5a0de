"""A model on this machine in words: its shape, and what it costs and gives at a budget."""

from __future__ import annotations

from engine.checkpoint.catalogue import ModelEntry
from engine.config import format_bytes

COSTS_EXPLAINED = "from: the smallest budget; %: the share of its experts on the device at your budget"


def model_shape(entry: ModelEntry) -> str:
    """`48 x 128 experts, 8 a token · 56.9 GiB`, as far as it is known. Where a second line tells of it:
    `48 x 128 experts · 17.3 GiB · LM Studio`."""
    parts = []
    if entry.num_experts is not None:
        layers = f"{entry.num_layers} x " if entry.num_layers is not None else ""
        used = f", {entry.top_k} a token" if entry.top_k is not None and not entry.formats else ""
        parts.append(f"{layers}{entry.num_experts} experts{used}")
    if entry.total_bytes:
        parts.append(format_bytes(entry.total_bytes))
    if entry.formats and entry.place:
        parts.append(entry.place)
    return " · ".join(parts)


def model_costs(entry: ModelEntry) -> str:
    """`qwen3moe, ggml · Q4_K 72%, Q6_K 27% · from 2.9 GiB · 41% at 9.4 GiB`, see COSTS_EXPLAINED; empty: not known."""
    if not entry.formats or not entry.is_supported:
        return ""
    parts = [", ".join(filter(None, (entry.architecture, entry.backend))), entry.formats]
    if (costs := entry.costs) is not None:
        parts.append(f"from {format_bytes(costs.least_bytes)}")
        if costs.residency is not None:
            parts.append(f"{costs.residency:.0%} at {format_bytes(costs.budget_bytes)}")
        elif costs.least_bytes > costs.available_bytes:
            parts.append(f"too much for the {format_bytes(costs.available_bytes)} that are free")
        else:
            parts.append(f"too much for {format_bytes(costs.budget_bytes)}")
    return " · ".join(parts)
