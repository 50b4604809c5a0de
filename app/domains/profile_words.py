"""What is said about domain profiles, in the menu, in the chat and on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.domains.domain import title_of
from app.formatting import figures
from engine.config import RECORDED_TOK
from engine.events import DomainSet, ProfileState

if TYPE_CHECKING:
    from app.domains.profile_book import ProfileTask

_BAR_WIDTH = 8


def state_text(state: ProfileState | None, *, is_known: bool, is_short: bool) -> str:
    """A domain's profile in the menu: whether there is one, and what it promises."""
    if not is_known:
        return figures.DASH
    if state is None:
        return "no profile yet"
    if state.problem:
        return "profile unusable" if is_short else "profile cannot be used"
    rate, prompts = figures.percent(state.expected_hit_rate), figures.counted(state.num_prompts, "prompt")
    return f"{rate}, {prompts}" if is_short else f"expected hit rate {rate}, {prompts}"


def detail(domain: str, state: ProfileState | None, *, is_known: bool) -> str:
    """About the highlighted domain: what its profile does, or why it does nothing."""
    title = title_of(domain)
    if not is_known:
        return "Profiles are listed once the engine is ready."
    if state is None:
        return f"{title} has no profile for this model yet: the expert cache warms up as you chat."
    if state.problem:
        return unusable(state)
    rate, prompts = figures.percent(state.expected_hit_rate), figures.counted(state.num_prompts, "prompt")
    return f"Choosing {title} warms the expert cache: expected hit rate {rate}, by a profile of {prompts}."


def about_building(num_prompts: int, tpot_ms: float | None) -> str:
    """What building a profile does, and about how long it takes."""
    if tpot_ms is None:
        duration = "usually some minutes"
    else:
        duration = f"at most {figures.roughly(num_prompts * RECORDED_TOK * tpot_ms / 1000)} at the present speed"
    return (
        f"{figures.counted(num_prompts, 'prompt')} are answered, up to {RECORDED_TOK} tokens each,"
        f" and the experts they use recorded: {duration}."
    )


def working(task: ProfileTask, ending: str, width: int) -> str:
    """How far a task is: `profile of Maths ▰▰▱ 12 of 40 prompts · 2 min left`; less of it where it does not fit."""
    profile = f"profile of {title_of(task.domain)}"
    if not task.is_build:
        return f"deleting the {profile} …{ending}"
    if task.is_cancelling:
        return f"stopping the {profile} …{ending}"
    if task.progress is None:
        return f"{profile}: waiting for the engine …{ending}"
    if task.progress.stage != "recording":
        return f"{profile}: {task.progress.stage} …{ending}"
    bar = figures.bar(task.progress.done, task.progress.total, _BAR_WIDTH)
    so_far = f"{task.progress.done} of {figures.counted(task.progress.total, 'prompt')}"
    left = f" · {figures.roughly(task.left_s)} left" if task.left_s else ""
    forms = (f"{profile}  {bar}  {so_far}{left}", f"{profile}  {so_far}{left}", f"{profile}  {so_far}")
    return next((form + ending for form in forms if len(form + ending) <= width), forms[-1] + ending)


def warmed(event: DomainSet) -> str:
    """What setting the domain did to the cache; empty where there is no profile."""
    if event.num_warmed is None:
        return ""
    title, rate = title_of(event.domain), figures.percent(event.expected_hit_rate)
    if event.num_warmed == 0:
        return f"cache already warm for {title}: expected hit rate {rate}"
    return f"cache warmed for {title}: {figures.counted(event.num_warmed, 'expert')} loaded, expected hit rate {rate}"


def unusable(state: ProfileState) -> str:
    """Why a domain's profile was not used."""
    return f"The profile of {title_of(state.domain)} cannot be used: {state.problem}"


def built(domain: str, expected_hit_rate: float | None) -> str:
    """A profile was built."""
    return f"The profile of {title_of(domain)} is built: expected hit rate {figures.percent(expected_hit_rate)}."


def deleted(domain: str) -> str:
    """A profile was deleted."""
    return f"The profile of {title_of(domain)} is deleted."


def stopped(domain: str) -> str:
    """Building was cancelled."""
    return f"Building the profile of {title_of(domain)} was stopped; nothing was changed."


def ended_with_engine(domain: str) -> str:
    """The engine ended under a task."""
    return f"The engine ended while it worked on the profile of {title_of(domain)}."
