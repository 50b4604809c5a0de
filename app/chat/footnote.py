"""What stands below an answer: how it ended and what it cost, or what went wrong."""

from __future__ import annotations

from collections.abc import Callable

from app.chat.exchange import Exchange
from app.storage import answer_record
from app.storage.records import COMPLETE, FAILED, PARTIAL, STOPPED, TurnRecord

_INTERRUPTED = "interrupted: the app ended while this was being written"
_ELSEWHERE = "another moe-chat is writing this"


def footnote(exchange: Exchange, key_of: Callable[[str], str]) -> str:
    """The lines below an answer that is finished: its record, one line for each time it was written, and what can be
    done about it; `key_of` gives the key of an action."""
    answer = exchange.answer
    if answer is None:
        return ""
    lines = answer_record.kept_summaries(answer.stats)
    if answer.state == PARTIAL and exchange.is_elsewhere:
        lines = [_ELSEWHERE]
    elif not lines and answer.state == PARTIAL:
        lines = [_INTERRUPTED]
    elif not lines and answer.state == STOPPED:
        lines = ["stopped"] if answer.text or answer.thinking else ["not answered"]
    if exchange.is_on_approximate_context:
        lines.append(f"under EXACT, {key_of('chat.regenerate')} answers again and computes what came before exactly")
    lines.append(context_note(exchange, key_of))
    lines.append(versions(exchange.answer_place, key_of))
    return "\n".join(line for line in lines if line)


def context_note(exchange: Exchange, key_of: Callable[[str], str]) -> str:
    """Whether a turn is in the context of what follows, where that is not what one expects; else empty."""
    answer = exchange.answer
    if answer is None or exchange.is_live or exchange.is_waiting:
        return ""
    is_whole = exchange.is_answered and answer.state == COMPLETE
    if exchange.is_in_context:
        return "" if is_whole else f"in the context of what follows  ·  {key_of('turn.context')} leaves it out"
    return f"not in the context of what follows  ·  {key_of('turn.context')} puts it in"


def versions(place: tuple[int, int], key_of: Callable[[str], str]) -> str:
    """Which version of a turn this is; empty where there is but one."""
    number, of = place
    keys = f"{key_of('turn.earlier')} and {key_of('turn.later')}"
    return f"version {number} of {of}  ·  {keys} show the others" if of > 1 else ""


def error(answer: TurnRecord) -> str:
    """What ended an answer; empty: nothing did."""
    return answer.markers[-1] if answer.state == FAILED and answer.markers else ""


def changes(answer: TurnRecord) -> list[str]:
    """What changed while an answer was written."""
    return answer.markers[:-1] if error(answer) else answer.markers
