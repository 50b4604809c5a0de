"""Finding text: what is typed as a pattern that also matches across line ends."""

from __future__ import annotations

import re
from collections.abc import Iterable


def pattern_of_any(queries: Iterable[str]) -> re.Pattern[str] | None:
    """Any of several texts, each as in `pattern_of`; the longest one that matches."""
    patterns = {pattern.pattern for query in queries if (pattern := pattern_of(query)) is not None}
    return re.compile("|".join(sorted(patterns, key=len, reverse=True)), re.IGNORECASE) if patterns else None


def pattern_of(query: str) -> re.Pattern[str] | None:
    """`query` without regard to case; a blank matches any white space, so that wrapped text is found. None: nothing
    to find."""
    words = query.split()
    return re.compile(r"\s+".join(re.escape(word) for word in words), re.IGNORECASE) if words else None
