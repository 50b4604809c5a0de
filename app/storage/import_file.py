"""A file of chats, whichever program wrote it: this one, or another one whose format is known."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from app.formatting.sanitise import text_of
from app.storage import chat_import
from app.storage.export import FORMAT, ExportError, KeptChat
from app.storage.other_programs import chatgpt, llama_cpp, lm_studio, message_tree, open_webui
from app.storage.system_errors import open_file, reason
from engine.config import format_bytes

MAX_BYTES = 512 * 1024**2
_PROGRAMS = (chatgpt, open_webui, llama_cpp, lm_studio)
_KNOWN = ", ".join(program.PROGRAM for program in _PROGRAMS)
_HINT = f"Name a file that `moe-chat chats export --json` made, or an export of {_KNOWN}."
_IN_ARCHIVE = "conversations.json"


class FoundChats(NamedTuple):
    """The chats in a file."""

    chats: list[KeptChat]
    program: str = ""
    """The other program that wrote it; empty: this one."""
    left_out: str = ""
    """What of it could not be taken over, in a sentence; empty: everything was."""


def read_file(path: Path) -> FoundChats:
    """The chats in a file; of an archive, as ChatGPT exports it, those in its `conversations.json`. Raises
    ExportError."""
    try:
        with open_file(path.expanduser()) as file:
            return read_bytes(_content(file, path))
    except OSError as error:
        raise ExportError(f"{path} cannot be read: {reason(error)}.", _HINT) from error


def read_bytes(content: bytes) -> FoundChats:
    """The chats in the content of a file. Raises ExportError."""
    try:
        document = json.loads(text_of(content))
    except (ValueError, RecursionError) as error:
        raise ExportError(f"The file is not valid JSON: {error}.", _HINT) from error
    if isinstance(document, dict) and document.get("format") == FORMAT:
        return FoundChats(chat_import.read_document(document))
    items: list[Any] = document if isinstance(document, list) else [document]
    program = next((program for program in _PROGRAMS if any(map(program.is_chat, items))), None)
    if program is None:
        raise ExportError("The file holds no chats of a known program.", _HINT)
    found: list[KeptChat] = []
    left_out: Counter[str] = Counter()
    for item in items:
        if not program.is_chat(item):
            left_out["chats that cannot be read"] += 1
            continue
        tree = program.read_chat(item)
        kept = message_tree.chats(tree)
        found += kept
        left_out += tree.left_out
        left_out["chats without a message"] += not kept
    return FoundChats(found, program.PROGRAM, _sentence(+left_out))


def _content(file: BinaryIO, path: Path) -> bytes:
    if zipfile.is_zipfile(file):
        try:
            with zipfile.ZipFile(file) as archive:
                names = [name for name in archive.namelist() if name.rpartition("/")[2] == _IN_ARCHIVE]
                if not names:
                    raise ExportError(f"There is no {_IN_ARCHIVE} in {path}.", _HINT)
                with archive.open(names[0]) as inside:
                    content = inside.read(MAX_BYTES + 1)
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
            raise ExportError(f"{path} cannot be read: {error}.", _HINT) from error
    else:
        file.seek(0)
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ExportError(f"{path} has more than {format_bytes(MAX_BYTES)}.", "Export fewer chats at once.")
    return content


def _sentence(left_out: Counter[str]) -> str:
    parts = [f"{what} ({number:,})" for what, number in sorted(left_out.items())]
    return f"Left out: {', '.join(parts)}." if parts else ""
