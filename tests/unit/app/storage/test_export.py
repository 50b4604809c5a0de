"""Chats as files: Markdown to read, JSON that comes back as it was, and files that are refused with the place."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.storage import answer_record, chat_import, export, import_file
from app.storage.export import ExportError, KeptChat
from app.storage.records import ASSISTANT, STOPPED, USER, ChatRecord, TurnRecord
from app.storage.store import ChatStore
from engine.events import STOP
from tests.functional.app.fake_engine import stats


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChatStore]:
    store = ChatStore(tmp_path / "chats.db")
    yield store
    store.close()


def _chat(text: str = "What is 17 × 23?") -> KeptChat:
    chat = ChatRecord("maths", "Be brief.", "demo")
    answer = TurnRecord(chat.chat_id, 1, ASSISTANT, "# 391\n\n**So** it is.", STOPPED, "exact", thinking="17 × 20 …")
    answer.stats = answer_record.as_json(stats(12), STOP, domain="maths", model="demo", top_k=2)
    answer.markers = ["exact → approx at token 4"]
    return KeptChat(chat, [TurnRecord(chat.chat_id, 0, USER, text), answer])


def test_markdown_tells_the_whole_chat() -> None:
    text = export.as_markdown(_chat())
    assert text.startswith("# What is 17 × 23?\n")
    for part in ("Be brief.", "## You", "## moe-chat", "17 × 20 …", "**So** it is.", "exact → approx at token 4"):
        assert part in text
    assert "*12 tok · TTFT 412 ms" in text


def test_json_comes_back_as_it_was(store: ChatStore) -> None:
    given = _chat("emoji 🙂, [red], \x1b[31m and \u202e")
    imported = chat_import.import_chats(store, import_file.read_bytes(export.as_json([given]).encode()).chats)
    assert imported.new == (given.chat.chat_id,)
    kept = export.kept_chat(store, given.chat.chat_id)
    assert kept is not None
    assert kept.chat == given.chat
    assert export.as_json([kept]) == export.as_json([given])


def test_importing_twice_adds_nothing_and_another_version_is_kept_beside(store: ChatStore) -> None:
    given = _chat()
    text = export.as_json([given])
    chat_import.import_chats(store, import_file.read_bytes(text.encode()).chats)
    assert str(chat_import.import_chats(store, import_file.read_bytes(text.encode()).chats)) == "1 chat already there"
    changed = text.replace("it is.", "it was.")
    imported = chat_import.import_chats(store, import_file.read_bytes(changed.encode()).chats)
    assert len(imported.copies) == 1
    assert store.num_chats() == 2
    assert "it is." in store.turns(given.chat.chat_id)[1].text
    assert "it was." in store.turns(imported.copies[0])[1].text


def _break(change: Callable[[dict[str, Any]], object]) -> str:
    document = json.loads(export.as_json([_chat()]))
    change(document)
    return json.dumps(document)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "no chats of a known program"),
        (_break(lambda document: document.update(version=2)), "version 2"),
        (_break(lambda document: document.update(chats=None)), "chats in the file is not a list"),
        (_break(lambda document: document["chats"].append(7)), r"chats\[1\] in the file is not an object"),
        (_break(lambda document: document["chats"][0].update(chat_id="../../etc")), "not an id"),
        (_break(lambda document: document["chats"][0].update(title=3)), r"chats\[0\].title in the file is not a text"),
        (_break(lambda document: document["chats"][0]["turns"][1].update(role="tool")), r"turns\[1\].role"),
        (_break(lambda document: document["chats"][0]["turns"][0].update(position=2)), "order"),
        (_break(lambda document: document["chats"][0]["turns"][1].update(position=2**70)), "position"),
        (_break(lambda document: document["chats"][0]["turns"][0].update(created_at="once")), "created_at"),
        (_break(lambda document: document["chats"][0]["turns"][0].update(markers=[1])), "markers"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_the_place(text: str, told: str) -> None:
    with pytest.raises(ExportError, match=told):
        import_file.read_bytes(text.encode())


def test_lone_surrogates_are_replaced(store: ChatStore) -> None:
    text = _break(lambda document: document["chats"][0].update(domain="a\ud800", title="\ud800"))
    imported = chat_import.import_chats(store, import_file.read_bytes(text.encode()).chats)
    assert store.chat(imported.new[0]) is not None


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    path = export.write_file(tmp_path / "chat.md", "one")
    with pytest.raises(ExportError, match="exists already"):
        export.write_file(path, "two")
    assert path.read_text() == "one"
    with pytest.raises(ExportError, match="cannot be written"):
        export.write_file(tmp_path / "no" / "chat.md", "one")


def test_file_names_need_no_quotes() -> None:
    kept = _chat('What is "$(rm -rf ~)"; or/else?')
    assert export.file_name(kept, ".md") == f"what-is-rm-rf-or-else-{kept.chat.chat_id[:8]}.md"
    assert export.file_name(_chat("🙂"), ".md").startswith("chat-")
