"""`moe-chat chats`: what is kept, on standard output. No engine is started."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

from app.cli.arguments.chats import LAST
from app.cli.commands import chat_bin
from app.cli.output.terminal_text import Bold, confirmed, say, say_exported, say_json, tell
from app.formatting.figures import counted
from app.formatting.sanitise import visible, whole
from app.storage import chat_import, export, import_file
from app.storage.bin import BIN_DAYS
from app.storage.export import KeptChat
from app.storage.forest import grouped_versions as linked_families
from app.storage.paths import AppPaths, make_private
from app.storage.records import SHORT_ID, ChatSummary, SearchResult, Snippet
from app.storage.store import ChatStore
from app.storage.words import ChatVersions, grouped_versions, when
from engine.errors import MoeChatError

_LOCK_WAIT_S = 5.0
"""How long a command waits for another program that holds the chat database."""


class ChatNotFoundError(MoeChatError):
    """No chat, or more than one, goes by that id."""

    title = "No such chat"


def run(arguments: argparse.Namespace) -> int:
    """Run `moe-chat chats ...`; returns the exit code. Raises MoeChatError."""
    paths = AppPaths.from_environment()
    store = ChatStore(paths.chats_db, lock_wait_s=_LOCK_WAIT_S)
    store.tell = tell
    try:
        commands: dict[str, Callable[[ChatStore, argparse.Namespace], int]] = {
            "list": _list,
            "show": _show,
            "search": _search,
            "export": _export,
            "import": _import,
            "rename": _rename,
            "delete": _delete,
            "bin": chat_bin.list_bin,
            "restore": chat_bin.restore,
        }
        if arguments.chats in ("delete", "bin", "restore"):
            store.bin.empty(days=BIN_DAYS)
        return commands[arguments.chats](store, arguments)
    finally:
        store.close()
        make_private(paths.data_dir)


def chat_id_of(store: ChatStore, name: str) -> str:
    """The id that `name` begins, or the newest chat's for `last`. Raises ChatNotFoundError and StoreError."""
    if name == LAST:
        newest = store.summaries(1)
        if not newest:
            raise ChatNotFoundError("No chats yet.", 'Begin one: moe-chat, or moe-chat ask "a question"')
        return newest[0].chat_id
    found = store.matching(name) if name else []
    if len(found) == 1 or name in found:
        return name if name in found else found[0]
    if not found:
        raise ChatNotFoundError(f"No chat's id begins with {name!r}.", "List them: moe-chat chats list")
    raise ChatNotFoundError(f"{name!r} begins the ids of several chats.", f"One of {', '.join(sorted(found))}")


def _list(store: ChatStore, arguments: argparse.Namespace) -> int:
    limit = arguments.limit
    chats = store.summaries(store.num_chats())
    if arguments.ids:
        say("\n".join(chat.chat_id[:SHORT_ID] for chat in chats))
        return 0
    listed = [ChatVersions((chat,)) for chat in chats] if arguments.all else grouped_versions(chats)
    if arguments.json:
        say_json([{**asdict(family.newest), "versions": family.chat_ids} for family in listed[:limit]])
        return 0
    for family in listed[:limit]:
        say(_line(family))
    if len(listed) > limit:
        tell(f"The newest {limit} of {len(listed)}; --limit shows more.")
    elif not listed:
        tell("No chats yet.")
    return 0


def _show(store: ChatStore, arguments: argparse.Namespace) -> int:
    kept = _kept(store, arguments.chat)
    if arguments.json:
        say_exported(export.as_json([kept]))
    else:
        say(export.as_markdown(kept), end="")
    return 0


def _search(store: ChatStore, arguments: argparse.Namespace) -> int:
    results = store.search(whole(" ".join(arguments.text)), arguments.limit)
    if arguments.json:
        say_json([_hit_json(result) for result in results])
        return 0
    for result in results:
        where = "title" if result.turn is None else f"turn {result.turn.position + 1}"
        say(f"{result.chat.chat_id[:SHORT_ID]}  {result.chat.title} · {when(result.chat.updated_at)} · {where}")
        say("          ", *_marked(result.snippet))
    if not results:
        tell("No matches.")
    return 0


def _export(store: ChatStore, arguments: argparse.Namespace) -> int:
    if bool(arguments.chat) == arguments.all:
        raise export.ExportError("Say which chats to export.", "Name them, or give --all.")
    named = [chat_id_of(store, name) for name in arguments.chat]
    chat_ids = [chat.chat_id for chat in store.chats()] if arguments.all else list(dict.fromkeys(named))
    with_versions = export.with_versions(store, chat_ids)
    chats = with_versions if arguments.json else [_kept(store, chat_id) for chat_id in chat_ids]
    write = export.as_json if arguments.json else _all_markdown
    output = Path(arguments.output).expanduser() if arguments.output else None
    if output is None:
        if arguments.json:
            say_exported(write(chats))
        else:
            say(write(chats), end="")
    elif output.is_dir():
        for one in linked_families(chats) if arguments.json else [[kept] for kept in chats]:
            path = output / export.file_name(one[0], ".json" if arguments.json else ".md")
            tell(f"Saved to {export.write_file(path, write(one))}")
    else:
        tell(f"Saved to {export.write_file(output, write(chats))}")
    if left_out := len(with_versions) - len(chats):
        tell(f"Not written: {counted(left_out, 'other version')} of it. With --json every version is.")
    return 0


def _all_markdown(chats: Iterable[KeptChat]) -> str:
    return "\n".join(map(export.as_markdown, chats))


def _import(store: ChatStore, arguments: argparse.Namespace) -> int:
    if arguments.file == "-":
        found = import_file.read_bytes(sys.stdin.buffer.read(import_file.MAX_BYTES))
    else:
        found = import_file.read_file(Path(arguments.file))
    say(str(chat_import.import_chats(store, found.chats)))
    if found.left_out:
        tell(found.left_out)
    return 0


def _rename(store: ChatStore, arguments: argparse.Namespace) -> int:
    chat_id = chat_id_of(store, arguments.chat)
    store.rename(chat_id, " ".join(arguments.title))
    say(f"{chat_id[:SHORT_ID]}  {_summary(store, chat_id).title}")
    return 0


def _delete(store: ChatStore, arguments: argparse.Namespace) -> int:
    for name in dict.fromkeys(chat_id_of(store, name) for name in arguments.chat):
        chat = _summary(store, name)
        about = f"“{chat.title}” ({counted(chat.num_turns, 'turn')})"
        if arguments.yes or confirmed(f"Delete {about}?"):
            store.delete_chat(name)
            say(f"Deleted {about}. To restore it: moe-chat chats restore {name[:SHORT_ID]}")
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


def _line(family: ChatVersions) -> str:
    """Id, what it is, title; cut at the edge of a terminal."""
    line = f"{family.newest.chat_id[:SHORT_ID]}  {family.newest.title} · {family.about()}"
    line = visible(" ".join(line.splitlines()))
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else len(line)
    return line if len(line) <= columns else f"{line[: columns - 1]}…"


def _hit_json(result: SearchResult) -> dict[str, object]:
    turn = result.turn
    return {
        "chat_id": result.chat.chat_id,
        "title": result.chat.title,
        "updated_at": result.chat.updated_at,
        "position": None if turn is None else turn.position,
        "role": None if turn is None else turn.role,
        "snippet": result.snippet.text,
        "marks": [list(mark) for mark in result.snippet.marks],
    }


def _marked(snippet: Snippet) -> list[str]:
    """The snippet in pieces; what matched is bold."""
    pieces, last = [], 0
    for start, end in snippet.marks:
        pieces += [snippet.text[last:start], Bold(snippet.text[start:end])]
        last = end
    return [*pieces, snippet.text[last:]]
