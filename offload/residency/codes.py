"""Residency codes: one byte per expert in a snapshot. Light: the app imports them by way of `engine.events`."""

from __future__ import annotations

from collections.abc import Iterable

HOST, RESIDENT, LOADING, IN_USE, SUBSTITUTE = range(5)
"""In the host tier; on the device; on its way; chosen for the current token; standing in for a missed expert."""


def marked(codes: bytes, in_use: Iterable[int], substitutes: Iterable[int]) -> bytes:
    """A layer's codes, with these experts shown as such, whatever their state."""
    shown = bytearray(codes)
    for expert in in_use:
        shown[expert] = IN_USE
    for expert in substitutes:
        shown[expert] = SUBSTITUTE
    return bytes(shown)
