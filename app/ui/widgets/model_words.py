"""What is said of a model in a list: its shape and size, or why it cannot be chosen."""

from __future__ import annotations

from collections.abc import Iterable

from textual.content import Content

from app.formatting.sanitise import visible
from engine.checkpoint.catalogue import ModelEntry
from engine.config import DEMO_MODEL, format_bytes

_NAME_WIDTH = 34
_DEMO_NAME = "The demo, SmolLM2-135M"


def title(entry: ModelEntry) -> str:
    """Its name for a person."""
    return _DEMO_NAME if entry.location == DEMO_MODEL else visible(entry.name)


def shape(entry: ModelEntry) -> str:
    """`48 x 128 experts, 8 a token · 56.9 GiB`, as far as it is known."""
    parts = []
    if entry.num_experts is not None:
        layers = f"{entry.num_layers} x " if entry.num_layers is not None else ""
        used = f", {entry.top_k} a token" if entry.top_k is not None else ""
        parts.append(f"{layers}{entry.num_experts} experts{used}")
    if entry.total_bytes:
        parts.append(format_bytes(entry.total_bytes))
    return " · ".join(parts)


def name_width(entries: Iterable[ModelEntry]) -> int:
    """Columns that hold the names but for the longest ones."""
    return min(_NAME_WIDTH, max((len(title(entry)) for entry in entries), default=0))


def line(entry: ModelEntry, current: str, width: int) -> Content:
    """One model, its name in `width` columns or more; one that cannot be chosen is grey, with the reason."""
    mark = "▸ " if entry.location == current else "  "
    name = f"{title(entry):<{width}}  "
    if not entry.is_supported:
        return Content.assemble(("  ", ""), (name, "$faint"), (visible(entry.reason), "$quiet"))
    note = shape(entry) or "built on first use" if entry.location == DEMO_MODEL else shape(entry)
    return Content.assemble((mark, "$primary"), (name, "bold"), (note, "$quiet"))
