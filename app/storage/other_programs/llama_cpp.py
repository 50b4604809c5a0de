"""Chats exported by the web interface of llama.cpp's server: {conv, messages}, or a list of them.

`conv` is {id, name, lastModified, currNode}; a message {id, type, role, content, parent, timestamp, thinking or
reasoningContent, extra, model}. The root and messages of the system carry no turn; `extra` holds attached files.
"""

from __future__ import annotations

from typing import Any

from app.storage.other_programs.message_tree import Message, MessageTree, dict_at, list_at, seconds, text_at
from app.storage.records import ASSISTANT, USER, Attachment

PROGRAM = "llama.cpp"
_FILES_OF_TEXT = ("textFile", "TEXT", "context")


def is_chat(value: Any) -> bool:
    """Whether an object is one of its chats."""
    return isinstance(value, dict) and isinstance(value.get("conv"), dict) and isinstance(value.get("messages"), list)


def read_chat(value: dict[str, Any]) -> MessageTree:
    """One chat."""
    conversation = dict_at(value, "conv")
    tree = MessageTree(
        PROGRAM,
        text_at(conversation, "id"),
        text_at(conversation, "name"),
        current_id=text_at(conversation, "currNode") or None,
    )
    for said in value["messages"]:
        if not isinstance(said, dict) or not text_at(said, "id"):
            tree.left_out["messages that cannot be read"] += 1
            continue
        message = Message(
            text_at(said, "id"), text_at(said, "parent") or None, created_at=seconds(said.get("timestamp"))
        )
        _fill(message, said, tree)
        tree.add(message)
    tree.created_at = min((message.created_at for message in tree.messages.values() if message.created_at), default=0.0)
    return tree


def _fill(message: Message, said: dict[str, Any], tree: MessageTree) -> None:
    role, content = text_at(said, "role"), text_at(said, "content")
    if role == "system":
        tree.system_prompt = tree.system_prompt or content
    elif role in (USER, ASSISTANT):
        message.role, message.text = role, content
        message.thinking = text_at(said, "thinking") or text_at(said, "reasoningContent")
        message.attachments = tuple(_attachments(list_at(said, "extra"), tree))
        tree.model = tree.model or text_at(said, "model")
    else:
        tree.left_out["messages of tools"] += 1


def _attachments(extra: list[Any], tree: MessageTree) -> list[Attachment]:
    """Attached files that are text; others are left out."""
    files = [one for one in extra if isinstance(one, dict)]
    texts = [one for one in files if text_at(one, "type") in _FILES_OF_TEXT and text_at(one, "content")]
    tree.left_out["attached files that are no text"] += len(extra) - len(texts)
    return [Attachment(text_at(one, "name") or "file", text_at(one, "content")) for one in texts]
