"""What is said about profiles, and how it shrinks."""

from __future__ import annotations

import pytest

from app.domains import profile_words
from app.domains.domain import all_domains, num_prompts, own_domain, title_of
from app.domains.profile_book import ProfileBook, ProfileTask
from app.formatting import figures
from engine.events import DomainSet, EngineReady, ProfileState, TaskEnded, TaskProgress


def building(done: int, left_s: float | None = 400.0) -> ProfileTask:
    progress = TaskProgress(1, "recording", done, 40)
    return ProfileTask(1, "documents", is_build=True, progress=progress, left_s=left_s)


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (90, "profile of Long documents  ▰▰▱▱▱▱▱▱  10 of 40 prompts · 7 min left · esc cancels"),
        (72, "profile of Long documents  10 of 40 prompts · 7 min left · esc cancels"),
        (60, "profile of Long documents  10 of 40 prompts · esc cancels"),
        (10, "profile of Long documents  10 of 40 prompts · esc cancels"),
    ],
)
def test_progress_takes_the_form_that_fits(width: int, text: str) -> None:
    assert profile_words.working(building(10), " · esc cancels", width) == text


@pytest.mark.parametrize(
    ("state", "is_known", "is_short", "text"),
    [
        (None, False, False, "–"),
        (None, True, False, "no profile yet"),
        (ProfileState("maths", 0.88, 40), True, False, "expected hit rate 88 %, 40 prompts"),
        (ProfileState("maths", 0.88, 40), True, True, "88 %, 40 prompts"),
        (ProfileState("maths", None, 1), True, False, "expected hit rate –, 1 prompt"),
        (ProfileState("maths", None, 0, "damaged"), True, False, "profile cannot be used"),
        (ProfileState("maths", None, 0, "damaged"), True, True, "profile unusable"),
    ],
)
def test_states(state: ProfileState | None, is_known: bool, is_short: bool, text: str) -> None:
    assert profile_words.state_text(state, is_known=is_known, is_short=is_short) == text


def test_the_question_says_about_how_long() -> None:
    assert "at most 3 min at the present speed" in profile_words.about_building(40, 100.0)
    assert "usually some minutes" in profile_words.about_building(40, None)


def test_warming() -> None:
    assert profile_words.warmed(DomainSet("maths", None, None)) == ""
    assert "1 expert loaded" in profile_words.warmed(DomainSet("maths", 1, 0.5))
    assert "already warm" in profile_words.warmed(DomainSet("maths", 0, 0.5))


@pytest.mark.parametrize(
    ("duration_s", "text"), [(2, "5 s"), (61, "60 s"), (200, "3 min"), (5399, "90 min"), (8000, "2 h")]
)
def test_rough_durations(duration_s: float, text: str) -> None:
    assert figures.roughly(duration_s) == text


def test_domains_have_prompts_and_titles() -> None:
    assert all(num_prompts(domain.name) >= 40 for domain in all_domains())
    assert num_prompts("astrology") == 0
    assert (title_of("documents"), title_of("mine")) == ("Long documents", "mine")
    assert own_domain("mine").system_prompt == ""


def test_time_left_goes_by_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    task = ProfileTask(1, "maths", is_build=True)
    task.note(TaskProgress(1, "recording", 0, 40))
    assert task.left_s is None
    for second in range(101, 120):
        now[0] = float(second)
        task.note(TaskProgress(1, "recording", 0, 40))
    now[0] = 120.0
    task.note(TaskProgress(1, "recording", 10, 40))
    assert task.left_s == 60.0
    now[0] = 121.0
    task.note(TaskProgress(1, "recording", 10, 40))
    assert task.left_s == 60.0, "a repeated word changes nothing"
    now[0] = 160.0
    task.note(TaskProgress(1, "recording", 10, 40))
    now[0] = 161.0
    task.note(TaskProgress(1, "recording", 11, 40))
    assert task.left_s == 58.0, "a question that was answered meanwhile is no part of the pace"


def test_another_tasks_end_is_not_ours() -> None:
    sent: list[object] = []
    book = ProfileBook(sent.append, lambda: 7)
    book.note(EngineReady("m", "t", 1, 1, 1, 1, ()))
    book.build("maths")
    book.note(TaskEnded(6, True, {}, ()))
    assert book.task is not None
    book.note(TaskEnded(7, True, {"expected_hit_rate": None}, ()))
    assert book.task is None
    assert [news.text for news in book.take_news()] == ["The profile of Maths is built: expected hit rate –."]
    assert not book.cancel()
