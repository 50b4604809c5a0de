"""A chat that another program writes, too: what is in the store is taken over into the conversation."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.chat.exchange import Exchange, pair
from app.storage.records import PARTIAL, USER, TurnRecord


@dataclass(slots=True)
class Changes:
    """What became different in a conversation."""

    added: list[Exchange] = field(default_factory=list)
    changed: list[Exchange] = field(default_factory=list)
    removed: list[Exchange] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


def take_over(exchanges: list[Exchange], turns: list[TurnRecord]) -> Changes:
    """Make a conversation's exchanges those of the `turns` that are kept, in their order.

    What is being written or waits here stays as it is. Changes `exchanges` and their records in place.
    """
    changes = Changes()
    known = {turn.turn_id: exchange for exchange in exchanges for turn in exchange.turns}
    kept: list[Exchange] = []
    for there in pair(turns):
        ids = [turn.turn_id for turn in there.turns]
        exchange = next((known[turn_id] for turn_id in ids if turn_id in known), None)
        if exchange is None:
            there.is_elsewhere = _is_being_written(there)
            changes.added.append(there)
            kept.append(there)
            continue
        kept.append(exchange)
        if not exchange.is_live and not exchange.is_waiting and _update(exchange, there):
            changes.changed.append(exchange)
    for exchange in exchanges:
        if exchange not in kept:
            if exchange.is_live or exchange.is_waiting:
                kept.append(exchange)
            else:
                changes.removed.append(exchange)
    exchanges[:] = sorted(kept, key=lambda exchange: exchange.question.position)
    return changes


def _is_being_written(exchange: Exchange) -> bool:
    return exchange.answer is not None and exchange.answer.state == PARTIAL


def _update(exchange: Exchange, there: Exchange) -> bool:
    """Take over the records of an exchange; whether they were different."""
    before = [_content(turn) for turn in exchange.turns]
    exchange.question.text, exchange.question.in_context = there.question.text, there.question.in_context
    if there.answer is not None and there.answer.turn_id not in {turn.turn_id for turn in exchange.turns}:
        if not (there.answer.text or there.answer.thinking) and exchange.answer is not None:
            return before != [_content(turn) for turn in exchange.turns]  # both have none
        exchange.answer, exchange.answer_id = there.answer, there.answer.turn_id
    elif there.answer is not None and exchange.answer is not None:
        for name in ("text", "thinking", "state", "stats", "markers", "mode_label"):
            setattr(exchange.answer, name, getattr(there.answer, name))
    is_changed = before != [_content(turn) for turn in exchange.turns]
    exchange.is_elsewhere = _is_being_written(exchange) and (is_changed or exchange.is_elsewhere)
    return is_changed


def _content(turn: TurnRecord) -> tuple[object, ...]:
    in_context = turn.in_context if turn.role == USER else None
    return turn.text, turn.thinking, turn.state, turn.stats, list(turn.markers), turn.mode_label, in_context
