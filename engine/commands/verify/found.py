"""What one way of verifying came to."""

from __future__ import annotations

Found = tuple[bool, dict[str, object], tuple[str, ...]]
"""Whether all is equal, the report, and its lines."""
