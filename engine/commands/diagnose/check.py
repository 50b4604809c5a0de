"""One finding of the doctor."""

from __future__ import annotations

from dataclasses import dataclass

OK, WARN, FAIL = "ok", "warn", "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding."""

    name: str
    verdict: str
    """ok, warn: it works, and could be better; fail: it does not work."""
    found: str
    advice: str = ""
    """What to do; empty: nothing."""
