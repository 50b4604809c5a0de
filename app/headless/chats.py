"""`moe-chat chats`: what is kept, on standard output. No engine is started."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

from app.command_line.options import at_least_one
from app.headless import terminal_text
from app.keeping import chat_import, export
from app.keeping.export import KeptChat
from app.keeping.records import ChatSummary, Hit, Snippet
from app.keeping.store import ChatStore
from app.keeping.words import Family, families, num_turns, when
from app.paths import AppPaths
from app.sanitise import visible
from engine.errors import MoeChatError

SHORT_ID = 8
"""Characters of an id that are shown; more are asked for where they are not enough."""
LAST = "last"


class ChatNotFoundError(MoeChatError):
    """No chat, or more than one, goes by that id."""

    title = "No such chat"


def run(arguments: argparse.Namespace) -> int:
    """Run `moe-chat chats ...`; returns the exit code. Raises MoeChatError."""
    store = ChatStore(AppPaths.from_environment().chats_db)
    try:
        commands: dict[str, Callable[[ChatStore, argparse.Namespace], int]] = {
            "list": _list,
            "show": _show,
            "search": _search,
            "export": _export,
            "import": _import,
            "rename": _rename,
            "delete": _delete,
        }
        return commands[arguments.chats](store, arguments)
    finally:
        store.close()


def chat_id_of(store: ChatStore, name: str) -> str:
    """The id that `name` begins, or the newest chat's for `last`. Raises ChatNotFoundError and StoreError."""
    if name == LAST:
        newest = store.summaries(1)
        if not newest:
            raise ChatNotFoundError("No chat is kept yet.", 'Begin one: moe-chat, or moe-chat ask "a question"')
        return newest[0].chat_id
    found = store.matching(name) if name else []
    if len(found) == 1 or name in found:
        return name if name in found else found[0]
    if not found:
        raise ChatNotFoundError(f"No chat's id begins with {name!r}.", "List them: moe-chat chats list")
    raise ChatNotFoundError(f"{name!r} begins the ids of several chats.", f"One of {', '.join(sorted(found))}")


def _list(store: ChatStore, arguments: argparse.Namespace) -> int:
    limit = at_least_one(arguments.limit, "--limit")
    chats = store.summaries(store.num_chats())
    if arguments.ids:
        print("\n".join(chat.chat_id[:SHORT_ID] for chat in chats))
        return 0
    listed = [Family((chat,)) for chat in chats] if arguments.all else families(chats)
    if arguments.json:
        print(terminal_text.json_text([_summary_json(family) for family in listed[:limit]]))
        return 0
    for family in listed[:limit]:
        print(_line(family))
    if len(listed) > limit:
        print(f"The newest {limit} of {len(listed)}; --limit shows more.", file=sys.stderr)
    elif not listed:
        print("No chat is kept yet.", file=sys.stderr)
    return 0


def _show(store: ChatStore, arguments: argparse.Namespace) -> int:
    kept = _kept(store, arguments.chat)
    print(export.as_json([kept]) if arguments.json else visible(export.as_markdown(kept)), end="")
    return 0


def _search(store: ChatStore, arguments: argparse.Namespace) -> int:
    hits = store.search(" ".join(arguments.text), at_least_one(arguments.limit, "--limit"))
    if arguments.json:
        print(terminal_text.json_text([_hit_json(hit) for hit in hits]))
        return 0
    for hit in hits:
        where = "title" if hit.turn is None else f"turn {hit.turn.position + 1}"
        print(f"{hit.chat.chat_id[:SHORT_ID]}  {visible(hit.chat.title)} · {when(hit.chat.updated_at)} · {where}")
        print(f"          {_marked(hit.snippet)}")
    if not hits:
        print("Found in no chat.", file=sys.stderr)
    return 0


def _export(store: ChatStore, arguments: argparse.Namespace) -> int:
    if bool(arguments.chat) == arguments.all:
        raise export.ExportError("Say which chats to export.", "Name them, or give --all.")
    names = [chat.chat_id for chat in store.summaries(store.num_chats())] if arguments.all else arguments.chat
    chats = [_kept(store, name) for name in names]
    write = export.as_json if arguments.json else _all_markdown
    output = Path(arguments.output).expanduser() if arguments.output else None
    if output is None:
        text = write(chats)
        print(visible(text) if sys.stdout.isatty() and not arguments.json else text, end="")
    elif output.is_dir():
        for kept in chats:
            path = output / export.file_name(kept, ".json" if arguments.json else ".md")
            print(f"Written to {export.write_file(path, write([kept]))}", file=sys.stderr)
    else:
        print(f"Written to {export.write_file(output, write(chats))}", file=sys.stderr)
    return 0


def _all_markdown(chats: Iterable[KeptChat]) -> str:
    return "\n".join(map(export.as_markdown, chats))


def _import(store: ChatStore, arguments: argparse.Namespace) -> int:
    if arguments.file == "-":
        chats = chat_import.read_json(sys.stdin.buffer.read().decode("utf-8", "replace"))
    else:
        chats = chat_import.read_file(Path(arguments.file))
    print(chat_import.import_chats(store, chats))
    return 0


def _rename(store: ChatStore, arguments: argparse.Namespace) -> int:
    chat_id = chat_id_of(store, arguments.chat)
    store.rename(chat_id, " ".join(arguments.title))
    print(f"{chat_id[:SHORT_ID]}  {visible(_summary(store, chat_id).title)}")
    return 0


def _delete(store: ChatStore, arguments: argparse.Namespace) -> int:
    for name in dict.fromkeys(chat_id_of(store, name) for name in arguments.chat):
        chat = _summary(store, name)
        about = f"“{visible(chat.title)}” ({num_turns(chat.num_turns)})"
        if arguments.yes or terminal_text.confirmed(f"Delete {about}?"):
            store.delete_chat(name)
            print(f"Deleted {about}.")
    return 0


def _kept(store: ChatStore, name: str) -> KeptChat:
    kept = export.kept_chat(store, chat_id_of(store, name))
    if kept is None:
        raise ChatNotFoundError("The chat was deleted meanwhile.")
    return kept


def _summary(store: ChatStore, chat_id: str) -> ChatSummary:
    summary = store.summary(chat_id)
    if summary is None:
        raise ChatNotFoundError("The chat was deleted meanwhile.")
    return summary


def _line(family: Family) -> str:
    """Id, what it is, title; cut at the edge of a terminal."""
    line = f"{family.newest.chat_id[:SHORT_ID]}  {visible(family.newest.title)} · {family.about()}"
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else len(line)
    return line if len(line) <= columns else f"{line[: columns - 1]}…"


def _summary_json(family: Family) -> dict[str, object]:
    return {**asdict(family.newest), "versions": list(family.chat_ids)}


def _hit_json(hit: Hit) -> dict[str, object]:
    turn = hit.turn
    return {
        "chat_id": hit.chat.chat_id,
        "title": hit.chat.title,
        "updated_at": hit.chat.updated_at,
        "position": None if turn is None else turn.position,
        "role": None if turn is None else turn.role,
        "snippet": hit.snippet.text,
        "marks": [list(mark) for mark in hit.snippet.marks],
    }


def _marked(snippet: Snippet) -> str:
    """The snippet; what matched is bold on a terminal."""
    text, last = "", 0
    for start, end in snippet.marks:
        text += visible(snippet.text[last:start]) + terminal_text.bold(visible(snippet.text[start:end]))
        last = end
    return text + visible(snippet.text[last:])
