"""The result type of both ways to verify: against the whole model, and layer by layer."""

from __future__ import annotations

ComparisonResult = tuple[bool, dict[str, object], tuple[str, ...]]
"""Whether everything is equal, the report, and its lines for a person."""
