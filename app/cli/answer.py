"""One answer without a screen: asked for, printed and kept as it comes, stopped by ctrl+c."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from app.chat.answer_clock import AnswerClock, AnswerEnd
from app.chat.conversation import Conversation
from app.chat.exchange import Exchange
from app.cli.engine_run import EngineFailure, Interrupt, events_until_stopped, is_of
from app.cli.output import terminal_text
from app.cli.output.screen import HeadlessScreen
from app.domains import profile_words
from app.engine_link.bridge import EngineLink
from app.formatting.alert import alert
from app.settings.settings import Settings
from engine.api import Cancel, SetDomain, SetMode, SetStrategy
from engine.config import STRATEGIES
from engine.errors import ConfigError, EngineDiedError
from engine.events import EngineReady, Event, Failed, ModeChanged, Profiles, TextDelta, TurnEnded

_SAVE_EVERY_S = 1.0


class HeadlessAnswers:
    """Answers by a loaded engine, one after the other."""

    def __init__(
        self,
        link: EngineLink,
        ready: EngineReady,
        screen: HeadlessScreen,
        settings: Settings,
        mode: str,
        strategy: str = STRATEGIES[0],
    ) -> None:
        self.ready = ready
        self.mode, self.strategy = mode, strategy
        self._settings = settings
        self._clock = AnswerClock()
        self._link = link
        self._screen = screen
        self._last_request_id = 0

    def give(self, conversation: Conversation, exchange: Exchange, interrupt: Interrupt) -> TurnEnded | None:
        """Ask, print and keep; None when ctrl+c stopped it and the engine did not end it in time. What there is of the
        answer is kept, whatever is raised. Raises EngineFailure."""
        ended: TurnEnded | None = None
        try:
            with interrupt.installed():
                ended = self._follow(conversation, exchange, interrupt)
        finally:
            if ended is None:
                conversation.save_partial()
        if ended is None:
            self._screen.end_text()
        elif ended.failure is not None:
            self._screen.event(ended.failure)
            raise EngineFailure(ended.failure)
        return ended

    def _follow(self, conversation: Conversation, exchange: Exchange, interrupt: Interrupt) -> TurnEnded | None:
        self._last_request_id += 1
        request_id = self._last_request_id
        self._screen.answered_by = {"domain": conversation.chat.domain, "model": self.ready.model_name}
        try:
            self._link.send(conversation.begin(exchange, request_id, self.mode))
        except EngineDiedError as error:
            raise self._failed(
                conversation, exchange, Failed(request_id, error.title, error.message, error.hint, is_fatal=True)
            ) from error
        saved_at = time.monotonic()
        for event in events_until_stopped(self._link, interrupt, lambda: self._link.send(Cancel(request_id))):
            self._keep(conversation, event)
            if not is_of(event, request_id):
                continue  # the end of an answer that was stopped and given up: kept, and not shown
            self._screen.event(event)
            for answer in self._clock.note([event]):
                call_user(self._settings, answer)
            if isinstance(event, TurnEnded):
                return event
            if isinstance(event, Failed):
                raise self._failed(conversation, exchange, event)
            if time.monotonic() - saved_at >= _SAVE_EVERY_S:
                saved_at = time.monotonic()
                conversation.save_partial()
        return None

    def _failed(self, conversation: Conversation, exchange: Exchange, failure: Failed) -> EngineFailure:
        self._screen.end_text()
        conversation.fail(exchange, failure)
        return EngineFailure(failure)

    def set_mode(self, mode: str) -> None:
        """EXACT or APPROX from the next answer on."""
        self._link.send(SetMode(mode))
        self.mode = mode

    def set_strategy(self, strategy: str) -> None:
        """Another strategy from the next answer on. Raises ConfigError for an unknown one."""
        self._link.send(SetStrategy(strategy))
        self.strategy = strategy

    def set_domain(self, domain: str) -> None:
        """Warm the expert cache by another domain's profile."""
        self._link.send(SetDomain(domain))

    def _keep(self, conversation: Conversation, event: Event) -> None:
        match event:
            case TextDelta():
                conversation.add_text(event)
            case ModeChanged(mode):
                conversation.note_mode(event, self.mode)
                self.mode = mode
            case Profiles(profiles):
                for state in profiles:
                    if state.domain == conversation.chat.domain and state.problem:
                        self._screen.note(profile_words.unusable(state))
            case TurnEnded():
                conversation.end(event, self.ready.top_k)


def call_user(settings: Settings, answer: AnswerEnd) -> None:
    """Tell the user of the end of an answer, as the settings say, if it took long."""
    if answer.took_s >= settings.number("screen.notify_after"):
        terminal_text.call_user(alert(settings.text("screen.notify"), answer.words, os.environ))


def thinking_choice(wanted: str, ready: EngineReady, tell: Callable[[str], None] | None = None) -> str | None:
    """What `Submit.thinking` is to say; None where nothing is wanted.

    A choice that the model does not have raises ConfigError, or is told and left out.
    """
    if not wanted or wanted in ready.thinking_choices:
        return wanted or None
    problem = f"{ready.model_name} cannot be told to think {wanted!r}."
    hint = f"It knows {', '.join(ready.thinking_choices)}." if ready.thinking_choices else "It has no such switch."
    if tell is None:
        raise ConfigError(problem, hint)
    tell(f"{problem} {hint}")
    return None
