"""Chats of other programs: branches stay versions, what cannot be taken over is said, nothing is imported twice."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.chat.exchange import pair
from app.chat.versions import versions_at
from app.storage import chat_import, import_file
from app.storage.export import ExportError, KeptChat
from app.storage.other_programs import message_tree
from app.storage.other_programs.message_tree import Message, MessageTree
from app.storage.records import ASSISTANT, USER
from app.storage.store import ChatStore


def _gpt(node: str, parent: str | None, role: str, *parts: Any, **more: Any) -> dict[str, Any]:
    message = {
        "author": {"role": role},
        "create_time": 1_700_000_000.5 + len(node),
        "recipient": more.pop("recipient", "all"),
        "content": {"content_type": more.pop("kind", "text"), "parts": list(parts)},
        "metadata": more,
    }
    return {"id": node, "parent": parent, "children": [], "message": message}


CHATGPT = [
    {
        "id": "conv-1",
        "title": "Capital\nof France",
        "create_time": 1_700_000_000.0,
        "current_node": "a2",
        "mapping": {
            node["id"]: node
            for node in (
                {"id": "root", "parent": None, "children": ["sys"], "message": None},
                _gpt("sys", "root", "system", ""),
                _gpt("q1", "sys", "user", "capital?"),
                _gpt("a1", "q1", "assistant", "Lyon.", model_slug="gpt-x"),
                _gpt("a2", "q1", "assistant", "Paris."),
                _gpt("q2", "a1", "user", {"asset_pointer": "file://x"}, "sure?", kind="multimodal_text"),
                _gpt("t1", "q2", "assistant", "search()", recipient="browser"),
                _gpt("t2", "t1", "tool", "results"),
                _gpt("a3", "t2", "assistant", "No:", kind="text"),
                _gpt("a4", "a3", "assistant", "Paris."),
                _gpt("c1", "a4", "assistant", "x", kind="execution_output"),
            )
        },
    },
    {"title": "not one"},
]

OPEN_WEBUI = [
    {
        "id": "w1",
        "title": "Web",
        "created_at": 1_744_577_557,
        "chat": {
            "models": ["m:free"],
            "params": {"system": "Be kind."},
            "history": {
                "currentId": "y",
                "messages": {
                    "q": {"id": "q", "parentId": None, "role": "user", "content": "hi", "timestamp": 1_744_577_557},
                    "x": {
                        "id": "x",
                        "parentId": "q",
                        "role": "assistant",
                        "content": "hello",
                        "timestamp": 1_744_577_558,
                    },
                    "y": {
                        "parentId": "q",
                        "role": "assistant",
                        "timestamp": 1_744_577_559,
                        "content": '<details type="reasoning" done="true">\n<summary>Thought</summary>\n&gt; 1 &lt; 2\n'
                        "</details>\nhey",
                        "files": [{"type": "image"}],
                    },
                },
            },
        },
    }
]

LLAMA_CPP = {
    "conv": {"id": "l1", "name": "Maths", "lastModified": 1_704_067_200_000, "currNode": "a"},
    "messages": [
        {"id": "r", "type": "root", "role": "system", "content": "", "parent": None, "timestamp": 1_704_067_200_000},
        {
            "id": "s",
            "type": "system",
            "role": "system",
            "content": "You count.",
            "parent": "r",
            "timestamp": 1_704_067_200_000,
        },
        {
            "id": "q",
            "role": "user",
            "content": "2+2?",
            "parent": "s",
            "timestamp": 1_704_067_201_000,
            "extra": [{"type": "textFile", "name": "n.txt", "content": "4"}, {"type": "imageFile", "name": "i.png"}],
        },
        {
            "id": "a",
            "role": "assistant",
            "content": "4",
            "parent": "q",
            "thinking": "sum",
            "timestamp": 1_704_067_202_000,
        },
    ],
}


def _said(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


def _step(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "contentBlock", "content": _said(text), **more}


LM_STUDIO = {
    "name": "Studio",
    "createdAt": 1_704_067_200_000,
    "systemPrompt": "Short.",
    "lastUsedModel": {"identifier": "qwen"},
    "messages": [
        {"currentlySelected": 0, "versions": [{"type": "singleStep", "role": "user", "content": _said("hi")}]},
        {
            "currentlySelected": 1,
            "versions": [
                {"type": "multiStep", "role": "assistant", "steps": [_step("one")]},
                {
                    "type": "multiStep",
                    "role": "assistant",
                    "steps": [_step("hm", style={"type": "thinking"}), {"type": "toolStatus"}, _step("two")],
                },
            ],
        },
    ],
}


def _read(document: object) -> import_file.FoundChats:
    return import_file.read_bytes(json.dumps(document).encode())


def _texts(kept: KeptChat) -> list[str]:
    return [turn.text for turn in kept.turns]


def test_chatgpt() -> None:
    found = _read(CHATGPT)
    assert found.program == "ChatGPT"
    main, branch = found.chats
    assert _texts(main) == ["capital?", "Paris."]
    assert _texts(branch) == ["capital?", "Lyon.", "sure?", "No:\n\nParis."]
    assert (branch.parent_chat_id, branch.chat.branched_at) == (main.chat_id, 0)
    assert (main.chat.title, main.chat.model) == ("Capital of France", "gpt-x")
    assert main.chat.created_at.startswith("2023-11-14T22:13:20")
    assert found.left_out == (
        "Left out: chats that cannot be read (1), images and other media (1), messages of kind execution_output (1),"
        " messages to and from tools (2)."
    )


def test_open_webui() -> None:
    found = _read(OPEN_WEBUI)
    main, branch = found.chats
    assert _texts(main) == ["hi", "hey"]
    assert main.turns[1].thinking == "1 < 2"
    assert _texts(branch) == ["hi", "hello"]
    assert (main.chat.system_prompt, main.chat.model, main.chat.title) == ("Be kind.", "m:free", "Web")
    assert "attached files and images (1)" in found.left_out
    assert _texts(_read(OPEN_WEBUI[0]["chat"]).chats[0]) == ["hi", "hey"]


def test_llama_cpp() -> None:
    for document in (LLAMA_CPP, [LLAMA_CPP]):
        (kept,) = _read(document).chats
        assert _texts(kept) == ["2+2?", "4"]
        assert kept.chat.system_prompt == "You count."
        assert kept.turns[1].thinking == "sum"
        assert [(one.name, one.text) for one in kept.turns[0].attachments] == [("n.txt", "4")]
    assert "attached files that are no text (1)" in _read(LLAMA_CPP).left_out


def test_lm_studio() -> None:
    found = _read(LM_STUDIO)
    main, branch = found.chats
    assert _texts(main) == ["hi", "two"]
    assert _texts(branch) == ["hi", "one"]
    assert (main.turns[1].thinking, main.chat.system_prompt, main.chat.model) == ("hm", "Short.", "qwen")
    assert "uses of tools (1)" in found.left_out


@pytest.mark.parametrize("document", [CHATGPT, OPEN_WEBUI, LLAMA_CPP, LM_STUDIO])
def test_nothing_is_imported_twice_and_versions_are_found(document: object, tmp_path: Path) -> None:
    store = ChatStore(tmp_path / "chats.db")
    found = _read(document)
    first = chat_import.import_chats(store, found.chats)
    assert len(first.new) == len(found.chats)
    again = chat_import.import_chats(store, _read(document).chats)
    assert (again.new, again.copies, len(again.known)) == ((), (), len(found.chats))
    chat = found.chats[0]
    at = 0 if chat.turns[0].role == USER else 1
    assert len(versions_at(store.chats(), chat.chat_id, at + 1)) == len(found.chats)
    store.close()


def test_an_archive_a_fifo_and_what_is_none_of_these(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        archive.writestr("x/conversations.json", json.dumps(CHATGPT))
    assert len(import_file.read_file(tmp_path / "export.zip").chats) == 2
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("readme", "x")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "odd.json").write_text('[{"a": 1}, 2]')
    (tmp_path / "deep.json").write_text("[" * 100_000)
    for name, why in (("other.zip", "no conversations.json"), ("pipe", "not a file"), ("odd.json", "no chats"),
                      ("deep.json", "not valid JSON"), ("absent", "cannot be read")):  # fmt: skip
        with pytest.raises(ExportError) as caught:
            import_file.read_file(tmp_path / name)
        assert why in caught.value.message
        assert "Open WebUI" in caught.value.hint


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from((CHATGPT, OPEN_WEBUI, LLAMA_CPP, LM_STUDIO)), st.data())
def test_whatever_stands_in_a_file_something_is_read_or_refused(document: object, data: st.DataObject) -> None:
    """Any value of any object is replaced by anything: no other error, and what is read can be kept."""
    changed = json.loads(json.dumps(document))
    places: list[tuple[Any, Any]] = []
    waiting = [changed]
    while waiting:
        value = waiting.pop()
        pairs = list(value.items() if isinstance(value, dict) else enumerate(value))
        places += [(value, key) for key, _ in pairs]
        waiting += [inner for _, inner in pairs if isinstance(inner, dict | list)]
    for holder, key in data.draw(st.lists(st.sampled_from(places), min_size=1, max_size=3, unique_by=str)):
        holder[key] = data.draw(_JSON)
    try:
        found = import_file.read_bytes(json.dumps(changed).encode())
    except ExportError:
        return
    for kept in found.chats:
        assert [turn.position for turn in kept.turns] == sorted({turn.position for turn in kept.turns})
        assert [turn for exchange in pair(kept.turns) for turn in (exchange.question, exchange.answer)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(-1, 9), st.sampled_from((USER, ASSISTANT, ""))), min_size=1, max_size=10))
def test_every_message_is_in_a_chat_and_what_is_shared_is_the_parents(links: list[tuple[int, str]]) -> None:
    """Any links between messages, circles too."""
    tree = MessageTree("test", "one")
    for number, (parent, role) in enumerate(links):
        tree.add(Message(str(number), str(parent) if parent >= 0 else None, role, f"text {number}", created_at=number))
    chats = message_tree.chats(tree)
    known = {kept.chat_id: kept for kept in chats}
    assert len(known) == len(chats)
    for kept in chats:
        if kept.parent_chat_id is not None:
            assert kept.chat.branched_at is not None
            parent = known[kept.parent_chat_id]
            shared = [(turn.position, turn.text) for turn in kept.turns if turn.position <= kept.chat.branched_at]
            assert shared == [(turn.position, turn.text) for turn in parent.turns][: len(shared)]
    has_circle = not any(parent < 0 or parent >= len(links) for parent, _ in links)
    if not has_circle and all(parent < number for number, (parent, _) in enumerate(links)):
        said = "\n".join(text for kept in chats for text in _texts(kept))
        assert all(f"text {number}" in said for number, (_, role) in enumerate(links) if role)
