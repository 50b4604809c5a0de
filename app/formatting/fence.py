"""A text inside Markdown as a block of code."""

from __future__ import annotations

import re


def fenced(text: str, language: str = "") -> str:
    """A text as a block of code, which nothing in it ends."""
    longest = max(map(len, re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
