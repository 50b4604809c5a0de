"""A conversation file of LM Studio (`.conversation.json`): {name, createdAt, systemPrompt, messages}.

A message is {versions, currentlySelected}; a version {type, role, content} or, of an answer in steps, {type, role,
steps: [{type: contentBlock, content, style}]}. Contents are lists of {type: text, text}. The other versions of a
message follow the selected one before it.
"""

from __future__ import annotations

from typing import Any

from app.storage.other_programs.message_tree import Message, MessageTree, dict_at, list_at, seconds, text_at
from app.storage.records import ASSISTANT, USER

PROGRAM = "LM Studio"
_SYSTEM_PROMPT = "llm.prediction.systemPrompt"


def is_chat(value: Any) -> bool:
    """Whether an object is one of its conversations."""
    messages = list_at(value, "messages") if isinstance(value, dict) else []
    return bool(messages) and all(isinstance(one, dict) and isinstance(one.get("versions"), list) for one in messages)


def read_chat(value: dict[str, Any]) -> MessageTree:
    """One conversation."""
    fields = [one for one in list_at(dict_at(value, "perChatPredictionConfig"), "fields") if isinstance(one, dict)]
    own_prompt = next((text_at(one, "value") for one in fields if one.get("key") == _SYSTEM_PROMPT), "")
    created_at = seconds(value.get("createdAt"))
    tree = MessageTree(
        PROGRAM,
        f"{text_at(value, 'name')} {created_at}",
        text_at(value, "name"),
        created_at,
        text_at(dict_at(value, "lastUsedModel"), "identifier"),
        own_prompt or text_at(value, "systemPrompt"),
    )
    for number, message in enumerate(value["messages"]):
        versions, selected = message["versions"], message.get("currentlySelected")
        at = selected if type(selected) is int and 0 <= selected < len(versions) else 0
        parent_id = tree.current_id
        for version_number, version in enumerate(versions):
            said = Message(f"{number}.{version_number}", parent_id, created_at=created_at)
            _fill(said, version, tree)
            tree.add(said)
        tree.current_id = f"{number}.{at}" if versions else parent_id
    return tree


def _fill(message: Message, version: Any, tree: MessageTree) -> None:
    role = text_at(version, "role") if isinstance(version, dict) else ""
    if role not in (USER, ASSISTANT):
        tree.left_out["messages that are neither questions nor answers"] += 1
        return
    message.role = role
    steps = list_at(version, "steps") if version.get("type") == "multiStep" else [{"type": "contentBlock", **version}]
    texts: list[str] = []
    thoughts: list[str] = []
    for step in steps:
        if isinstance(step, dict) and step.get("type") in ("contentBlock", "singleStep"):
            is_thinking = dict_at(step, "style").get("type") == "thinking"
            (thoughts if is_thinking else texts).append(_content(step, tree))
        elif isinstance(step, dict) and "tool" in text_at(step, "type").lower():
            tree.left_out["uses of tools"] += 1
    message.text, message.thinking = "\n\n".join(filter(None, texts)), "\n\n".join(filter(None, thoughts))


def _content(holder: dict[str, Any], tree: MessageTree) -> str:
    parts = [part for part in list_at(holder, "content") if isinstance(part, dict)]
    tree.left_out["attached files and images"] += sum(text_at(part, "type") == "file" for part in parts)
    texts = [text_at(part, "text") for part in parts if part.get("type") == "text"]
    return text_at(holder, "content") or "\n".join(texts)
