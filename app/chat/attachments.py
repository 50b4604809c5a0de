"""Files that are sent with a question: those that its text names with `@path`.

A word that names nothing that is there stays text, so that `@property` needs no care. What is there and cannot be sent
(a folder, a device, something that is no text, or too large) is an error: nobody is to believe that it was sent.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from app.formatting import mention
from app.formatting.fence import fenced
from app.formatting.sanitise import text_of, whole
from app.storage.records import Attachment, TurnRecord
from app.storage.system_errors import open_file, reason
from engine.config import format_bytes
from engine.errors import MoeChatError

MAX_BYTES = 1024**2
"""Of a file, and of all files of a question together."""
MAX_FILES = 20

_TRAILING = re.compile(r"[.,;:!?)\]}'”]+$")
_ODD_SHARE = 0.02
"""Of characters that are no text, in a file that is one all the same."""
_ODD = re.compile("[\ufffd\x01-\x08\x0e-\x1f]")


class AttachmentError(MoeChatError):
    """A file that was named cannot be sent."""

    title = "Attachment"


class Question(NamedTuple):
    """A question as it is asked: its text, and the files with it."""

    text: str
    attachments: tuple[Attachment, ...] = ()


def question_of(text: str, named_in: str | None = None, sent_before: Iterable[Attachment] = ()) -> Question:
    """Read the files that a question names. Raises AttachmentError.

    `named_in` is where names are looked for, if not in all of the text. Files that were sent before, with an earlier
    wording, are sent as they were then.
    """
    known = {attachment.name: attachment for attachment in sent_before}
    found: dict[str, Attachment] = {}
    for name in mention.paths(text if named_in is None else named_in):
        attachment = known.get(name) or known.get(_TRAILING.sub("", name))
        if attachment is None and (there := existing(name)) is not None:
            attachment = read(there)
        if attachment is not None:
            found[attachment.name] = attachment
    size = sum(len(attachment.text.encode("utf-8", "replace")) for attachment in found.values())
    if len(found) > MAX_FILES or size > MAX_BYTES:
        raise AttachmentError(
            f"{len(found)} files of {format_bytes(size)} together are too much for one question.",
            f"At most {MAX_FILES} files and {format_bytes(MAX_BYTES)} are sent with one.",
        )
    return Question(mention.unescaped(text, lambda name: existing(name) is not None), tuple(found.values()))


def existing(name: str) -> str | None:
    """The path that a mention names, without the sign that ends its sentence; None: there is nothing of that name."""
    for path in dict.fromkeys((name, _TRAILING.sub("", name))):
        try:
            Path(path).expanduser().lstat()
        except (OSError, ValueError, RuntimeError):
            continue
        return path
    return None


def read(name: str) -> Attachment:
    """Read a file as text. Raises AttachmentError: one sentence why, and how to send the name as it is."""
    path = Path(name).expanduser()
    try:
        if stat.S_ISDIR(path.stat().st_mode):
            raise _refusal(name, "is a folder: name a file in it")
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _refusal(name, f"cannot be read: {reason(error)}") from error
    if max(size, len(content)) > MAX_BYTES:
        raise _refusal(
            name, f"has {format_bytes(max(size, len(content)))}; at most {format_bytes(MAX_BYTES)} can be sent"
        )
    text = whole(text_of(content))
    if b"\0" in content or len(_ODD.findall(text)) > _ODD_SHARE * len(text):
        raise _refusal(name, "is no text in UTF-8")
    if not text.strip():
        raise _refusal(name, "is empty")
    return Attachment(name, text)


def sent_text(question: TurnRecord) -> str:
    """What the model is told: the files, each under its name, then the question."""
    return "\n\n".join([*map(as_sent, question.attachments), question.text])


def as_sent(attachment: Attachment) -> str:
    """A file as the model is told it."""
    suffix = Path(attachment.name).suffix[1:]
    return f"{attachment.name}:\n{fenced(attachment.text, suffix if suffix.isalnum() else '')}"


def dropped(text: str) -> str:
    """A text that was pasted, as mentions where it is nothing but whole paths of files, as terminals paste what is
    dropped on them; else empty."""
    line = text.strip()
    if "\n" in line or not line.startswith(("/", "~/", "file://", "'", '"')):
        return ""
    try:
        parts = [line] if _is_file(line) else shlex.split(line)
    except ValueError:
        return ""
    names = [unquote(part.removeprefix("file://")) if part.startswith("file://") else part for part in parts]
    is_all = bool(names) and all(name.startswith(("/", "~/")) and _is_file(name) for name in names)
    return " ".join(map(mention.written, names)) if is_all else ""


def about(attachment: Attachment) -> str:
    """`120 lines, 3.4 KiB`."""
    num_lines = attachment.text.rstrip("\n").count("\n") + 1
    lines = "1 line" if num_lines == 1 else f"{num_lines:,} lines"
    return f"{lines}, {format_bytes(len(attachment.text.encode('utf-8', 'replace')))}"


def _is_file(name: str) -> bool:
    try:
        return Path(name).expanduser().is_file()
    except (OSError, ValueError, RuntimeError):
        return False


def _refusal(name: str, why: str) -> AttachmentError:
    return AttachmentError(f"{name} {why}.", f"To send the name alone, write @{mention.written(name)}.")
