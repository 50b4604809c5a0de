"""The engine's domain profiles as the app sees them: which there are, the domain chosen, the task at work on one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from app.domains import profile_words
from engine.api import BuildProfile, Cancel, Command, DeleteProfile, SetDomain
from engine.events import DomainSet, EngineReady, Event, Failed, Profiles, ProfileState, TaskEnded, TaskProgress

_GAP_S = 2.0
"""Progress is repeated more often; without it the engine answered a question, which is no part of the pace."""


class News(NamedTuple):
    """Something about profiles that the user should hear of once."""

    text: str
    is_error: bool = False


@dataclass(slots=True)
class ProfileTask:
    """Building or deleting a profile, from the wish to its end."""

    request_id: int
    domain: str
    is_build: bool
    progress: TaskProgress | None = None
    """None: the engine has not begun; it may be answering."""
    left_s: float | None = None
    """By the pace so far."""
    is_cancelling: bool = False
    _begun_at: float = field(default_factory=time.monotonic)
    _noted_at: float = field(default_factory=time.monotonic)

    def note(self, progress: TaskProgress) -> None:
        """The engine said how far it is."""
        now = time.monotonic()
        if now - self._noted_at > _GAP_S:
            self._begun_at += now - self._noted_at
        self._noted_at = now
        if self.progress is None or progress.stage != self.progress.stage:
            self._begun_at, self.left_s = now, None
        elif progress.done != self.progress.done and progress.done > 0:
            self.left_s = (now - self._begun_at) / progress.done * (progress.total - progress.done)
        self.progress = progress


class ProfileBook:
    """One for the life of the app, whatever engine runs. `send` drops what no engine can take."""

    def __init__(self, send: Callable[[Command], None], next_request_id: Callable[[], int]) -> None:
        self.domain: str | None = None
        """What the chat is about; a new engine is told again."""
        self.domain_set: DomainSet | None = None
        """The engine's last word on it."""
        self.task: ProfileTask | None = None
        self._states: dict[str, ProfileState] | None = None
        self._is_engine_ready = False
        self._news: list[News] = []
        self._send = send
        self._next_request_id = next_request_id

    @property
    def is_known(self) -> bool:
        """The engine has said which profiles there are."""
        return self._states is not None

    def state(self, domain: str) -> ProfileState | None:
        """A domain's profile; None while there is none, or none is known of."""
        return (self._states or {}).get(domain)

    def names(self) -> tuple[str, ...]:
        """The domains that have a profile."""
        return tuple(self._states or ())

    def choose(self, domain: str) -> None:
        """The chat is about `domain` from now on: warm the cache, at the latest when the engine is ready."""
        self.domain = domain
        if self._is_engine_ready:
            self._send(SetDomain(domain))

    def build(self, domain: str) -> None:
        """Record the shipped prompts and keep the profile. One task at a time: call only while `task` is None."""
        self.task = ProfileTask(self._next_request_id(), domain, is_build=True)
        self._send(BuildProfile(self.task.request_id, domain))

    def delete(self, domain: str) -> None:
        """Delete a profile. One task at a time, too."""
        self.task = ProfileTask(self._next_request_id(), domain, is_build=False)
        self._send(DeleteProfile(self.task.request_id, domain))

    def cancel(self) -> bool:
        """Stop building; False when nothing is being built."""
        if self.task is None or not self.task.is_build:
            return False
        self.task.is_cancelling = True
        self._send(Cancel(self.task.request_id))
        return True

    def take_news(self) -> list[News]:
        """What has not been told yet."""
        news, self._news = self._news, []
        return news

    def forget(self) -> None:
        """The engine is gone, and with it what it knew and did."""
        if self.task is not None:
            self._news.append(News(profile_words.ended_with_engine(self.task.domain), is_error=True))
        self._states, self.task, self._is_engine_ready = None, None, False

    def note(self, event: Event) -> None:
        """Take in what the engine told."""
        task = self.task
        match event:
            case EngineReady():
                self._is_engine_ready = True
                if self.domain is not None:
                    self._send(SetDomain(self.domain))
            case Profiles():
                self._states = {state.domain: state for state in event.profiles}
            case DomainSet():
                self.domain_set = event
            case TaskProgress() if task is not None and event.request_id == task.request_id:
                task.note(event)
            case TaskEnded() if task is not None and event.request_id == task.request_id:
                self._end(task, event)
            case Failed() if task is not None and event.request_id == task.request_id:
                self.task = None
                if task.is_cancelling:
                    self._news.append(News(profile_words.stopped(task.domain)))
                else:
                    self._news.append(News(event.in_full, is_error=True))
            case _:
                pass

    def _end(self, task: ProfileTask, event: TaskEnded) -> None:
        self.task = None
        if not task.is_build:
            self._news.append(News(profile_words.deleted(task.domain)))
            return
        expected = event.report.get("expected_hit_rate")
        self._news.append(News(profile_words.built(task.domain, expected if isinstance(expected, float) else None)))
        if task.domain == self.domain:
            self.choose(task.domain)
