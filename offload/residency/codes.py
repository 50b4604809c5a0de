"""Residency codes: one byte per expert in a snapshot. Light: the app imports them by way of `engine.events`."""

from __future__ import annotations

HOST, RESIDENT, LOADING, IN_USE, SUBSTITUTE = range(5)
"""In the host tier; on the device; on its way; chosen for the current token; standing in for a missed expert."""
