"""A question and its answer, as one piece of a chat."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from app.storage.records import ASSISTANT, PARTIAL, STOPPED, USER, TurnRecord, new_id
from engine.events import LABEL_APPROX_CONTEXT


@dataclass(slots=True, eq=False)
class Exchange:
    """A question and, once the engine has been asked, its answer."""

    question: TurnRecord
    answer: TurnRecord | None = None
    request_id: int | None = None
    num_tok: int = 0
    """Tokens written in this run."""
    is_stopping: bool = False
    is_resuming: bool = False
    """The answer waits to be continued, or is."""
    recomputes: bool = False
    """What of the context is approximate is to be computed again for the answer."""
    asked: dict[str, object] = field(default_factory=dict)
    """The mode and the sampling that the answer was asked with."""
    written_before: tuple[str, str] = ("", "")
    """What there was of an answer that is continued, and of its thinking."""
    answer_id: str = field(default_factory=new_id)
    """The id of the answer: one that is written again in its place keeps it."""
    question_place: tuple[int, int] = (1, 1)
    """Which version of the question this is, and of how many."""
    answer_place: tuple[int, int] = (1, 1)
    """Which version of the answer this is, and of how many."""
    is_left_out: bool = False
    """The model no longer sees it."""
    is_elsewhere: bool = False
    """Another program is writing the answer, or was when it was last looked at."""
    thinking_tok: int = 0
    thinking_s: float = 0.0
    _thinking_since: float | None = field(default=None, repr=False)

    @property
    def turns(self) -> list[TurnRecord]:
        """The question, and the answer if there is one."""
        return [self.question] if self.answer is None else [self.question, self.answer]

    @property
    def is_live(self) -> bool:
        """The answer is being written."""
        return self.answer is not None and self.answer.state == PARTIAL and self.request_id is not None

    @property
    def is_waiting(self) -> bool:
        """The engine has not been asked yet."""
        return self.request_id is None and (self.answer is None or self.is_resuming)

    @property
    def can_resume(self) -> bool:
        """There is a partial answer to go on with."""
        answer = self.answer
        return (
            answer is not None
            and not self.is_live
            and not self.is_elsewhere
            and bool(answer.text or answer.thinking)
            and ends_early(answer)
        )

    @property
    def is_in_context(self) -> bool:
        """Later questions are asked with it: as the user has it, else once it is answered."""
        chosen = self.question.in_context
        return self.is_answered if chosen is None else chosen

    @property
    def is_unseen(self) -> bool:
        """The model does not see it any more, or never did."""
        is_open = self.is_live or self.is_waiting
        return self.is_left_out or (not is_open and not self.is_in_context)

    @property
    def is_answered(self) -> bool:
        """There is text of an answer."""
        return self.answer is not None and bool(self.answer.text.strip())

    @property
    def is_on_approximate_context(self) -> bool:
        """The answer is exact but for what of the text before it was computed under APPROX."""
        return self.answer is not None and self.answer.mode_label == LABEL_APPROX_CONTEXT

    @property
    def positions(self) -> range:
        """Where its turns stand in the chat."""
        last = self.answer.position if self.answer is not None else self.question.position + 1
        return range(self.question.position, max(last, self.question.position) + 1)

    def think(self, num_tok: int, *, is_thinking: bool) -> None:
        """Count what the model thinks before it answers, by the clock of whoever watches."""
        now = time.monotonic()
        if is_thinking:
            self._thinking_since = self._thinking_since or now
            self.thinking_tok = num_tok
        if self._thinking_since is not None:
            self.thinking_s = now - self._thinking_since
        if not is_thinking:
            self._thinking_since = None


def has_text(answer: TurnRecord) -> bool:
    """The model has written something."""
    return bool(answer.text.strip() or answer.thinking.strip())


def ends_early(answer: TurnRecord) -> bool:
    """The answer was stopped, cut, or its writer died."""
    reason = (answer.stats or {}).get("reason", "")
    return answer.state != "complete" or reason in ("length", "context_full")


def pair(turns: list[TurnRecord]) -> list[Exchange]:
    """Turns in order as exchanges. What has no answer was stopped; what has no question gets an empty one."""
    exchanges: list[Exchange] = []
    for turn in turns:
        if turn.role == USER:
            exchanges.append(Exchange(turn))
        elif turn.role == ASSISTANT and exchanges and exchanges[-1].answer is None:
            exchanges[-1].answer, exchanges[-1].answer_id = turn, turn.turn_id
        else:
            exchanges.append(Exchange(TurnRecord(turn.chat_id, turn.position, USER), turn, answer_id=turn.turn_id))
    for exchange in exchanges:
        if exchange.answer is None:
            question = exchange.question
            exchange.answer = TurnRecord(question.chat_id, question.position + 1, ASSISTANT, state=STOPPED)
    return exchanges
