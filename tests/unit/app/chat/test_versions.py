"""Which chats hold versions of a turn."""

from __future__ import annotations

from app.chat.versions import versions_at
from app.storage.records import ChatRecord


def chat(name: str, parent: str | None = None, at: int | None = None) -> ChatRecord:
    """A chat whose name is its place in time, too."""
    return ChatRecord("", "", "", chat_id=name, created_at=name, parent_chat_id=parent, branched_at=at)


FAMILY = [
    chat("a"),
    chat("b", "a", 2),  # the answer at 3 was regenerated
    chat("c", "b", 2),  # and again
    chat("d", "c", -1),  # the first question was asked differently
    chat("e", "a", 5),  # a branch after the turn at 5
    chat("z"),
]


def test_branches_after_the_same_turn_are_versions_of_the_next_one() -> None:
    assert versions_at(FAMILY, "a", 3) == ["a", "b", "c"]
    assert versions_at(FAMILY, "c", 3) == ["a", "b", "c"]


def test_a_version_is_told_by_the_chat_one_is_in() -> None:
    assert versions_at(FAMILY, "e", 3) == ["e", "b", "c"]
    assert versions_at(FAMILY, "e", 6) == ["a", "e"]


def test_asking_the_first_question_differently_makes_versions_of_it() -> None:
    assert versions_at(FAMILY, "d", 0) == ["a", "d"]
    assert versions_at(FAMILY, "c", 0) == ["c", "d"]


def test_turns_that_are_shared_or_alone_have_one_version() -> None:
    assert versions_at(FAMILY, "b", 1) == ["b"]
    assert versions_at(FAMILY, "z", 0) == ["z"]
    assert versions_at(FAMILY, "unknown", 0) == ["unknown"]


def test_a_branch_whose_parent_was_deleted_stands_alone() -> None:
    assert versions_at([chat("b", None, 2), chat("c", "gone", 2)], "c", 3) == ["c"]


def test_a_circle_of_links_ends() -> None:
    circle = [chat("a", "c", 5), chat("b", "a", 5), chat("c", "b", 5), chat("d", "b", 3), chat("e", "e", 4)]
    assert versions_at(circle, "d", 4) == ["a", "d"]
    assert versions_at(circle, "b", 4) == ["b", "d"]
    assert versions_at(circle, "e", 2) == ["e"]
