"""A backup is whole: chats, their versions and their links come back as they were, whatever the store holds."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.storage import chat_import, export, import_file, words
from app.storage.export import KeptChat
from app.storage.forest import grouped_versions, parents_first, version_ids
from app.storage.recorder import Recorder
from app.storage.records import (
    ASSISTANT,
    COMPLETE,
    FAILED,
    PARTIAL,
    STOPPED,
    USER,
    Attachment,
    ChatRecord,
    ChatSummary,
    KeptPreset,
    TurnRecord,
)
from app.storage.store import ChatStore

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_STATS = st.none() | st.dictionaries(_TEXTS, st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | _TEXTS)
_STATES = st.sampled_from((COMPLETE, PARTIAL, STOPPED, FAILED))


@contextmanager
def _opened() -> Iterator[ChatStore]:
    with tempfile.TemporaryDirectory() as folder:
        store = ChatStore(Path(folder) / "chats.db")
        try:
            yield store
        finally:
            store.close()


@st.composite
def _turns(draw: st.DrawFn, chat_id: str, start: int) -> list[TurnRecord]:
    return [
        TurnRecord(
            chat_id,
            position,
            USER if position % 2 == 0 else ASSISTANT,
            draw(_TEXTS),
            draw(_STATES),
            draw(st.sampled_from(("", "exact", "approximate"))),
            draw(_STATS),
            draw(st.lists(_TEXTS, max_size=2)),
            thinking=draw(_TEXTS),
            attachments=tuple(draw(st.lists(st.builds(Attachment, _TEXTS, _TEXTS), max_size=2))),
        )
        for position in range(start, start + draw(st.integers(0, 3)))
    ]


@st.composite
def _forests(draw: st.DrawFn) -> list[KeptChat]:
    """Chats, some of which branched from others at any turn; -1 where the first question was edited."""
    chats: list[KeptChat] = []
    for number in range(draw(st.integers(1, 6))):
        chat = ChatRecord(draw(_TEXTS), draw(_TEXTS), draw(_TEXTS), chat_id=f"chat{number}", title=draw(_TEXTS))
        chat.preset = draw(st.none() | st.builds(KeptPreset, _TEXTS, st.dictionaries(_TEXTS, st.integers() | _TEXTS)))
        shared: list[TurnRecord] = []
        if chats and draw(st.booleans()):
            parent = draw(st.sampled_from(chats))
            chat.parent_chat_id = parent.chat_id
            chat.branched_at = draw(st.integers(-1, len(parent.turns) - 1))
            turns = parent.turns[: chat.branched_at + 1]
            shared = [replace(turn, chat_id=chat.chat_id, turn_id=f"{number}-{turn.turn_id}") for turn in turns]
        chats.append(KeptChat(chat, shared + draw(_turns(chat.chat_id, len(shared)))))
    return chats


def _keep(store: ChatStore, chats: list[KeptChat]) -> None:
    store.save_all(chats)


def _exported(store: ChatStore) -> str:
    return export.as_json(export.with_versions(store, [chat.chat_id for chat in store.chats()]))


def _content(kept: KeptChat) -> object:
    chat = kept.chat
    return [
        chat.domain,
        chat.system_prompt,
        chat.preset,
        chat.branched_at,
        [export.turn_json(turn) for turn in kept.turns],
    ]


def _check_is_there(store: ChatStore, chats: list[KeptChat], kept_ids: dict[str, str]) -> None:
    """Each chat is in the store under an id that `kept_ids` gives, with its content and its parent."""
    for kept in chats:
        there = export.kept_chat(store, kept_ids[kept.chat_id])
        assert there is not None
        assert _content(there) == _content(kept)
        assert there.parent_chat_id == (kept.parent_chat_id and kept_ids[kept.parent_chat_id])


@settings(max_examples=25, deadline=None)
@given(_forests(), st.randoms(use_true_random=False))
def test_a_forest_comes_back_whole_in_any_order(forest: list[KeptChat], random: object) -> None:
    with _opened() as first, _opened() as second:
        _keep(first, forest)
        chats = import_file.read_bytes(_exported(first).encode()).chats
        random.shuffle(chats)  # type: ignore[attr-defined]
        chat_import.import_chats(second, chats)
        assert second.chats() == sorted(first.chats(), key=lambda chat: second.chats().index(chat))
        _check_is_there(second, forest, {kept.chat_id: kept.chat_id for kept in forest})
        assert not chat_import.import_chats(second, chats).new


@settings(max_examples=25, deadline=None)
@given(_forests(), st.data())
def test_a_changed_store_keeps_its_own_and_gets_the_whole_forest(forest: list[KeptChat], data: st.DataObject) -> None:
    with _opened() as store:
        _keep(store, forest)
        text = _exported(store)
        for kept in forest:
            match data.draw(st.sampled_from(("as it was", "deleted", "went on", "cut", "renamed"))):
                case "deleted":
                    store.delete_chat(kept.chat_id)
                case "went on":
                    store.save_turn(TurnRecord(kept.chat_id, len(kept.turns), USER, "and further"))
                case "cut":
                    store.delete_turns(turn.turn_id for turn in store.turns(kept.chat_id))
                case "renamed":
                    store.rename(kept.chat_id, "another name")
        before = export.with_versions(store, [chat.chat_id for chat in store.chats()])
        chat_import.import_chats(store, import_file.read_bytes(text.encode()).chats)
        for kept in before:
            there = export.kept_chat(store, kept.chat_id)
            assert there is not None
            assert _content(there) == _content(kept)
        _check_is_there(store, forest, _ids_in(store, forest))
        num_chats = store.num_chats()
        again = chat_import.import_chats(store, import_file.read_bytes(text.encode()).chats)
        assert (again.new, again.copies, store.num_chats()) == ((), (), num_chats)


def _ids_in(store: ChatStore, forest: list[KeptChat]) -> dict[str, str]:
    """For each chat of the forest, parents first, one in the store with its content below the parent's."""
    everything = export.with_versions(store, [chat.chat_id for chat in store.chats()])
    ids: dict[str, str] = {}
    for kept in parents_first(forest):
        parent = kept.parent_chat_id and ids[kept.parent_chat_id]
        fitting = [
            other.chat_id
            for other in everything
            if _content(other) == _content(kept)
            and other.parent_chat_id == parent
            and other.chat_id not in ids.values()
        ]
        ids[kept.chat_id] = kept.chat_id if kept.chat_id in fitting else fitting[0]
    return ids


@pytest.fixture
def store() -> Iterator[ChatStore]:
    with _opened() as store:
        yield store


def _linked(chat_id: str, parent: str | None = None, branched_at: int | None = None) -> KeptChat:
    chat = ChatRecord("general", "", "demo", chat_id=chat_id, parent_chat_id=parent, branched_at=branched_at)
    return KeptChat(chat, [TurnRecord(chat_id, 0, USER, f"question of {chat_id}")])


def test_a_link_that_was_lost_is_put_back(store: ChatStore) -> None:
    parent, child = _linked("parent"), _linked("child", "parent", -1)
    chat_import.import_chats(store, [child])
    kept = store.chat("child")
    assert kept is not None
    assert kept.parent_chat_id is None
    chat_import.import_chats(store, [child, parent])
    kept = store.chat("child")
    assert kept is not None
    assert (kept.parent_chat_id, kept.branched_at) == ("parent", -1)


def test_no_file_puts_a_circle_into_the_store(store: ChatStore) -> None:
    one, two = _linked("one", "two", 0), _linked("two", "one", 0)
    for _ in range(2):
        chat_import.import_chats(store, [one, two])
        chat_import.import_chats(store, [two, one])
        chat_import.import_chats(store, [_linked("self", "self", 0)])
    parents = {chat.chat_id: chat.parent_chat_id for chat in store.chats()}
    assert {"one", "two", "self"} <= set(parents)
    for chat_id in parents:
        ancestors, above = {chat_id}, parents[chat_id]
        while above is not None:
            assert above not in ancestors
            ancestors.add(above)
            above = parents[above]


def test_one_chat_is_exported_with_its_versions(store: ChatStore) -> None:
    chats = [_linked("a"), _linked("b", "a", -1), _linked("c", "b", 0), _linked("other")]
    _keep(store, chats)
    assert {kept.chat_id for kept in export.with_versions(store, ["b"])} == {"a", "b", "c"}
    recorder = Recorder(store, print)
    assert {chat.chat_id for chat, _ in recorder.versions("c")} == {"a", "b", "c"}
    assert {chat.chat_id for chat, _ in recorder.versions("other")} == {"other"}


def test_links_are_followed() -> None:
    chats = [_linked("c", "b"), _linked("b", "a"), _linked("x"), _linked("a")]
    assert [kept.chat_id for kept in parents_first(chats)] == ["a", "b", "c", "x"]
    assert [[kept.chat_id for kept in family] for family in grouped_versions(chats)] == [["c", "b", "a"], ["x"]]
    assert version_ids(chats, "none") == ["none"]


def test_versions_are_one_line_of_a_list_even_where_their_parent_is_not_in_it() -> None:
    listed = [ChatSummary(name, name, "", 1, "general", "demo", above) for name, above in (("c", "a"), ("b", "a"))]
    assert [family.chat_ids for family in words.grouped_versions(listed)] == [("c", "b")]


def test_turns_that_two_instances_wrote_at_one_place_come_back(store: ChatStore) -> None:
    chat = _linked("a")
    twice = KeptChat(chat.chat, [*chat.turns, TurnRecord("a", 0, USER, "at the same time")])
    chat_import.import_chats(store, import_file.read_bytes(export.as_json([twice]).encode()).chats)
    assert len(store.turns("a")) == 2
