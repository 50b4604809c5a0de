"""`conversations.json` of a ChatGPT export: a list of {title, create_time, mapping, current_node}.

`mapping` has by id {message, parent, children}; a message is {author: {role}, recipient, create_time, metadata,
content: {content_type, parts}}. Only what was said between user and assistant as text is taken over.
"""

from __future__ import annotations

from typing import Any

from app.storage.other_programs.message_tree import Message, MessageTree, dict_at, list_at, seconds, text_at
from app.storage.records import ASSISTANT, USER

PROGRAM = "ChatGPT"
_TEXT_KINDS = ("text", "multimodal_text")


def is_chat(value: Any) -> bool:
    """Whether an object is one of its chats."""
    return isinstance(value, dict) and isinstance(value.get("mapping"), dict)


def read_chat(value: dict[str, Any]) -> MessageTree:
    """One chat."""
    tree = MessageTree(
        PROGRAM,
        text_at(value, "conversation_id", "id"),
        text_at(value, "title"),
        seconds(value.get("create_time")),
        text_at(value, "default_model_slug"),
        current_id=text_at(value, "current_node") or None,
    )
    for node_id, node in value["mapping"].items():
        if not isinstance(node, dict):
            tree.left_out["messages that cannot be read"] += 1
            continue
        message = Message(node_id, text_at(node, "parent") or None)
        if isinstance(node.get("message"), dict):
            _fill(message, node["message"], tree)
        tree.add(message)
    return tree


def _fill(message: Message, said: dict[str, Any], tree: MessageTree) -> None:
    """Take over what was said, or count it as left out."""
    content, metadata = dict_at(said, "content"), dict_at(said, "metadata")
    role = text_at(dict_at(said, "author"), "role")
    parts = list_at(content, "parts")
    text = "\n\n".join(part for part in parts if isinstance(part, str) and part.strip())
    kind = text_at(content, "content_type")
    if metadata.get("is_visually_hidden_from_conversation") is True or role == "system":
        tree.left_out["hidden messages"] += bool(text)
        return
    if role not in (USER, ASSISTANT) or text_at(said, "recipient") not in ("", "all"):
        tree.left_out["messages to and from tools"] += 1
        return
    tree.left_out["images and other media"] += sum(isinstance(part, dict) for part in parts)
    if kind not in _TEXT_KINDS:
        tree.left_out[f"messages of kind {kind[:40] or 'unknown'}"] += 1
        return
    message.role, message.text, message.created_at = role, text, seconds(said.get("create_time"))
    tree.left_out["attached files"] += len(list_at(metadata, "attachments"))
    tree.model = tree.model or text_at(metadata, "model_slug")
