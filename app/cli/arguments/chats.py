"""`moe-chat chats ...`, as a parser."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from app.cli.arguments.shared import add_count

if TYPE_CHECKING:
    from app.cli.arguments.shared import Commands

_EXIT_CODES = "exit codes: 0 done · 1 there is no such chat, or it could not be done · 2 wrong usage"
LAST = "last"
_CHAT = f"its id, the beginning of it, or `{LAST}`"


def add_chats(commands: Commands) -> None:
    """Listing, showing, searching, exporting, importing, renaming, deleting and restoring chats."""
    chats = commands.add_parser(
        "chats",
        help="list, show, search, export, import, rename, delete and restore chats",
        description="The chats that are kept on this machine. No model is loaded.",
        epilog=f"CHAT is {_CHAT}. {_EXIT_CODES}",
    )
    kinds = chats.add_subparsers(dest="chats", metavar="WHAT", required=True)
    listed = _add(kinds, "list", "the chats, the newest first; the versions of one as one line")
    listed.add_argument("--all", action="store_true", help="every version by itself")
    listed.add_argument("--ids", action="store_true", help="the ids alone, of every chat")
    add_count(listed, "--limit", "show at most N", 20)
    searched = _add(kinds, "search", "find a text in titles and turns, the newest first")
    searched.add_argument("text", nargs="+", metavar="TEXT", help='words, or "words in this order" in their own quotes')
    add_count(searched, "--limit", "show at most N", 50)
    shown = _add(kinds, "show", "print a chat")
    shown.add_argument("chat", metavar="CHAT", help=_CHAT)
    for kind in (listed, searched, shown):
        kind.add_argument("--json", action="store_true", help="print it as JSON")
    _add_files(kinds)
    renamed = _add(kinds, "rename", "rename a chat")
    renamed.add_argument("chat", metavar="CHAT", help=_CHAT)
    renamed.add_argument("title", nargs="+", metavar="TITLE", help='the title; "" makes one from the first question')
    deleted = _add(kinds, "delete", "move chats to the bin, after asking")
    deleted.add_argument("chat", nargs="+", metavar="CHAT", help=_CHAT)
    deleted.add_argument("-y", "--yes", action="store_true", help="do not ask")
    binned = _add(kinds, "bin", "what was deleted in the last 30 days: chats and turns")
    binned.add_argument("--json", action="store_true", help="print it as JSON")
    restored = _add(kinds, "restore", "restore what was deleted")
    restored.add_argument(
        "deletion",
        metavar="ID",
        nargs="?",
        default=LAST,
        help="its id as `chats bin` prints it, a deleted chat's, the beginning of one, or `last` (default)",
    )


def _add_files(kinds: Commands) -> None:
    exported = _add(kinds, "export", "write chats as Markdown to read, or as JSON to keep")
    exported.add_argument("chat", nargs="*", metavar="CHAT", help=_CHAT)
    exported.add_argument("--all", action="store_true", help="every chat")
    exported.add_argument("--json", action="store_true", help="as JSON, which `chats import` reads back")
    exported.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="a new file, or a folder, where each chat gets a file of its own, as JSON with its versions "
        "(default: standard output)",
    )
    imported = _add(kinds, "import", "read chats exported as JSON, by ChatGPT and others too; none is imported twice")
    imported.add_argument(
        "file", metavar="FILE", help="of this program, ChatGPT, Open WebUI, llama.cpp or LM Studio; - is standard input"
    )


def _add(kinds: Commands, name: str, about: str) -> argparse.ArgumentParser:
    return kinds.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.", epilog=_EXIT_CODES)
