"""Finding text: what is typed as a pattern that also matches across line ends."""

from __future__ import annotations

import re


def pattern_of(query: str) -> re.Pattern[str] | None:
    """`query` without regard to case; a blank matches any white space, so that wrapped text is found. None: nothing
    to find."""
    words = query.split()
    return re.compile(r"\s+".join(re.escape(word) for word in words), re.IGNORECASE) if words else None
