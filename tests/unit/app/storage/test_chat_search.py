"""Searching chats: any text is a valid search, with an index and without one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.storage import database as chat_database
from app.storage.records import ASSISTANT, USER, Attachment, ChatRecord, Snippet, TurnRecord
from app.storage.store import ChatStore


@pytest.fixture(params=[True, False], ids=["index", "no index"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatStore]:
    if not request.param:
        monkeypatch.setattr(chat_database, "has_fts5", lambda connection: False)
    store = ChatStore(tmp_path / "chats.db")
    yield store
    store.close()


def _keep(store: ChatStore, *texts: str, title: str = "") -> ChatRecord:
    chat = ChatRecord("general", "", "demo", title=title)
    store.save_whole(
        chat, [TurnRecord(chat.chat_id, at, ASSISTANT if at % 2 else USER, text) for at, text in enumerate(texts)]
    )
    return chat


def _marked(snippet: Snippet) -> list[str]:
    return [snippet.text[start:end] for start, end in snippet.marks]


@pytest.mark.parametrize(
    ("searched", "marked"),
    [
        ("paris", ["Paris"]),
        ("PARIS seine", ["Paris", "Seine"]),
        ("par", ["Par"]),
        ('"the capital"', ["the capital"]),
        ("cafe", ["caf"]),
        ("首都", ["首都"]),
        ("=>", ["=>"]),
        ("[red]", ["[red]"]),
        ("x => 1", ["x", "=>", "1"]),
    ],
)
def test_words_are_found_and_marked(store: ChatStore, searched: str, marked: list[str]) -> None:
    _keep(store, "nothing here")
    chat = _keep(store, "question", "Paris is the capital,\non the Seine; a café; 法国的首都是巴黎; x => 1 [red]")
    (hit,) = store.search(searched)
    assert hit.chat.chat_id == chat.chat_id
    assert hit.turn is not None
    assert hit.turn.position == 1
    found = _marked(hit.snippet)
    assert all(any(text.startswith(wanted) for text in found) for wanted in marked)
    assert "\n" not in hit.snippet.text


@pytest.mark.parametrize(
    "searched",
    [
        "",
        "   ",
        '"',
        '""',
        "AND",
        "OR NOT",
        "NEAR(",
        "a*b^",
        "text:",
        "(",
        "-x",
        "'",
        "\0",
        "\x02",
        "%_",
        "{}",
        "\ud800",
    ],
)
def test_no_text_breaks_a_search(store: ChatStore, searched: str) -> None:
    _keep(store, "some words", "more of them")
    assert isinstance(store.search(searched), list)


@pytest.mark.parametrize("sign", ["-", ".", "'", "_", "...", "a -"])
def test_signs_without_a_word_are_found(store: ChatStore, sign: str) -> None:
    _keep(store, "nothing here")
    chat = _keep(store, "it's a - b_c ... d")
    assert [hit.chat.chat_id for hit in store.search(sign)] == [chat.chat_id]


def test_every_word_must_be_there(store: ChatStore) -> None:
    _keep(store, "apples and pears")
    assert store.search("apples pears")
    assert store.search("apples plums") == []
    assert store.search('"apples pears"') == []


def test_titles_come_first_and_have_no_turn(store: ChatStore) -> None:
    _keep(store, "about planets")
    named = _keep(store, "something else", title="Planets of the sun")
    first, second = store.search("planets")
    assert (first.chat.chat_id, first.turn, first.chat.title) == (named.chat_id, None, "Planets of the sun")
    assert second.turn is not None


def test_the_index_follows_every_change(store: ChatStore) -> None:
    chat = _keep(store, "one", "first answer", "two", "second answer")
    turn = store.turns(chat.chat_id)[1]
    turn.text = "first reply"
    store.save_turn(turn)
    assert len(store.search("answer")) == 1
    store.delete_turns(turn.turn_id for turn in store.turns(chat.chat_id)[2:])
    assert store.search("answer") == []
    assert len(store.search("reply")) == 1
    store.rename(chat.chat_id, "A name")
    assert len(store.search("name")) == 1
    store.delete_chat(chat.chat_id)
    assert store.search("reply") == store.search("name") == []


@pytest.mark.parametrize("searched", ["turbine", "report.md", "efficiency summarise", "=>"])
def test_files_that_were_sent_are_found_by_name_and_text(store: ChatStore, searched: str) -> None:
    _keep(store, "summarise something else")
    chat = ChatRecord("general", "", "demo")
    files = (Attachment("report.md", "The turbine's\nefficiency => 41 %"), Attachment("b.txt", "more"))
    turn = TurnRecord(chat.chat_id, 0, USER, "Summarise these.", attachments=files)
    store.save_whole(chat, [turn])
    (result,) = store.search(searched)
    assert result.turn == turn
    assert _marked(result.snippet)
    turn.attachments = files[1:]
    store.save_turn(turn)
    assert store.search(searched) == []
    store.delete_chat(chat.chat_id)
    assert store.search("more") == []


def test_a_long_text_gives_a_short_snippet(store: ChatStore) -> None:
    _keep(store, "word " * 5000 + "needle " + "word " * 5000)
    (hit,) = store.search("needle")
    assert len(hit.snippet.text) < 200
    assert _marked(hit.snippet) == ["needle"]
    assert hit.snippet.text.startswith("…")
    assert hit.snippet.text.endswith("…")


def test_at_most_so_many(store: ChatStore) -> None:
    _keep(store, *["same words"] * 30)
    assert len(store.search("same", limit=7)) == 7


def test_an_index_that_could_not_be_kept_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ChatStore(tmp_path / "chats.db")
    chat = _keep(store, "with an index")
    store.close()
    with monkeypatch.context() as without:
        without.setattr(chat_database, "has_fts5", lambda connection: False)
        store.save_turn(TurnRecord(chat.chat_id, 1, ASSISTANT, "without an index"))
        assert not store.can_index
        assert len(store.search("index")) == 2
        store.close()
    assert store.can_index
    assert len(store.search("index")) == 2
    store.close()


def test_the_index_outlives_vacuum(tmp_path: Path) -> None:
    store = ChatStore(tmp_path / "chats.db")
    gone, kept = _keep(store, "gone"), _keep(store, "needle")
    store.delete_chat(gone.chat_id)
    store.close()
    connection = sqlite3.connect(tmp_path / "chats.db")
    connection.execute("VACUUM")
    connection.close()
    (hit,) = store.search("needle")
    assert hit.chat.chat_id == kept.chat_id
    store.close()
