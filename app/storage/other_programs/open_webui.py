"""Chats exported by Open WebUI: a list of {id, title, chat: {...}}, or such a `chat` alone.

A chat is {title, models, params, system, history: {messages, currentId}}; a message, by id, {role, content, parentId,
timestamp, files}. What the model thought stands in the content as `<details type="reasoning">`.
"""

from __future__ import annotations

import html
import re
from typing import Any

from app.storage.other_programs.message_tree import Message, MessageTree, dict_at, list_at, seconds, text_at
from app.storage.records import ASSISTANT, USER

PROGRAM = "Open WebUI"
_REASONING = re.compile(r'<details\b[^>]*type="reasoning"[^>]*>(.*?)</details>\s*', re.DOTALL)
_SUMMARY = re.compile(r"<summary>.*?</summary>\s*", re.DOTALL)


def is_chat(value: Any) -> bool:
    """Whether an object is one of its chats."""
    return isinstance(value, dict) and isinstance(dict_at(_chat(value), "history").get("messages"), dict)


def read_chat(value: dict[str, Any]) -> MessageTree:
    """One chat."""
    chat = _chat(value)
    history = dict_at(chat, "history")
    models = [model for model in list_at(chat, "models") if isinstance(model, str)]
    tree = MessageTree(
        PROGRAM,
        text_at(value, "id") or text_at(chat, "id") or text_at(history, "currentId"),
        text_at(value, "title") or text_at(chat, "title"),
        seconds(value.get("created_at")) or seconds(chat.get("timestamp")),
        models[0] if models else "",
        text_at(dict_at(chat, "params"), "system") or text_at(chat, "system"),
        current_id=text_at(history, "currentId") or None,
    )
    for message_id, said in history["messages"].items():
        if not isinstance(said, dict):
            tree.left_out["messages that cannot be read"] += 1
            continue
        message = Message(message_id, text_at(said, "parentId") or None, created_at=seconds(said.get("timestamp")))
        role = text_at(said, "role")
        if role in (USER, ASSISTANT):
            message.role, (message.text, message.thinking) = role, _without_thinking(text_at(said, "content"))
            tree.left_out["attached files and images"] += len(list_at(said, "files"))
        else:
            tree.left_out["messages that are neither questions nor answers"] += 1
        tree.add(message)
    return tree


def _chat(value: dict[str, Any]) -> dict[str, Any]:
    return dict_at(value, "chat") or value


def _without_thinking(content: str) -> tuple[str, str]:
    """A content without what the model thought, and that."""
    thoughts = [html.unescape(_SUMMARY.sub("", found)) for found in _REASONING.findall(content)]
    lines = [line.removeprefix("> ").removeprefix(">") for thought in thoughts for line in thought.strip().splitlines()]
    return _REASONING.sub("", content), "\n".join(lines)
