"""The settings file: read with what is wrong in it said, written atomically with what is not ours kept.

A file that cannot be understood is left as it is, and nothing is written until it has been mended. Comments, order and
unknown keys survive a change, and so does what another instance wrote meanwhile: a change is made in the file as it is
then.
"""

from __future__ import annotations

import errno
import io
import os
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from app.formatting.sanitise import whole
from app.settings import file_places
from app.settings.setting import Value
from app.storage.system_errors import open_file, reason
from engine.errors import MoeChatError

_HEAD = "Settings of moe-chat. The app changes them too; what is not set has its default."


class TomlError(MoeChatError):
    """A file is not TOML. The message says where and why."""

    title = "Settings"


class ReadResult(NamedTuple):
    """What the file holds, by table and name, what there is to say about it, and on which line each key stands."""

    tables: dict[str, dict[str, object]]
    problems: tuple[str, ...]
    lines: Mapping[str, int]


class SettingsFile:
    """One TOML file of tables. It need not exist."""

    def __init__(self, path: Path, head: str = _HEAD) -> None:
        """`head` is the comment that a new file begins with."""
        self.path = path
        self._head = head

    @property
    def exists(self) -> bool:
        """Something was saved before."""
        return self.path.is_file()

    def read(self) -> ReadResult:
        """Read it. Raises nothing."""
        try:
            parsed, text = self.parse()
        except FileNotFoundError:
            return ReadResult({}, (), {})
        except OSError as error:
            problem = f"The settings {self.path} cannot be read ({reason(error)}). The defaults hold."
            return ReadResult({}, (problem,), {})
        except TomlError as error:
            problem = f"{error.message} The defaults hold, and nothing is saved until it is corrected."
            return ReadResult({}, (problem,), {})
        tables = {name: table for name, table in parsed.items() if isinstance(table, dict)}
        lines = file_places.key_lines(text)
        strays = tuple(
            f"{self.place(lines.get(name))}: {name!r} is outside a table; it is left as it is."
            for name in parsed.keys() - tables
        )
        return ReadResult(tables, strays, lines)

    def parse(self) -> tuple[dict[str, object], str]:
        """What the file holds, and its text. Raises OSError, and TomlError where it is not TOML."""
        try:
            text = self._text()
            return tomllib.loads(text), text
        except (ValueError, RecursionError) as error:
            raise TomlError(self._misread(error)) from error

    def place(self, line: int | None) -> str:
        """The file and a line of it, for a message."""
        return f"{self.path}, line {line}" if line else str(self.path)

    def write(self, changes: Mapping[tuple[str, str], Value | None]) -> None:
        """Set (table, name) to a value; None takes it out. Raises OSError; the file is whole whatever happens."""
        import tomlkit  # 30 ms: not before the first change
        from tomlkit.exceptions import TOMLKitError

        try:
            text = self._text()
            tomllib.loads(text)
            document = tomlkit.parse(text)
        except FileNotFoundError:
            document = tomlkit.document()
            document.add(tomlkit.comment(self._head))
        except OSError as error:
            raise PermissionError(13, "the file could not be read, and is not written over") from error
        except (TOMLKitError, ValueError, RecursionError) as error:
            raise PermissionError(13, f"{self._misread(error)} Correct it first.") from error
        for (table, name), value in changes.items():
            if value is not None:
                if not isinstance(document.get(table), dict):
                    document[table] = tomlkit.table()
                document[table][name] = _written(value)
            elif isinstance(document.get(table), dict):
                document[table].pop(name, None)
        text = tomlkit.dumps(document)
        if whole(text) != text:
            raise OSError(errno.EILSEQ, "a name that is not UTF-8 text cannot be kept in it")
        _replace(self.path.resolve(), text)

    def _text(self) -> str:
        with io.TextIOWrapper(open_file(self.path), encoding="utf-8") as file:
            return file.read()

    def _misread(self, error: Exception) -> str:
        """Where the file stops being TOML, and why, for a person."""
        if isinstance(error, UnicodeDecodeError):
            line = error.object.count(b"\n", 0, error.start) + 1
            return f"{self.place(line)}: it is not UTF-8 text."
        try:
            text = self._text()
        except (OSError, ValueError):
            text = ""
        number, why = file_places.syntax_problem(text, error)
        return f"{self.place(number)}: {why}"


def _written(value: Value) -> object:
    """A value as the file has it: a text of several lines as such."""
    import tomlkit

    if isinstance(value, str) and "\n" in value and value[0] != "\n" and "\r" not in value:
        return tomlkit.string(value, multiline=True)
    return value


def _replace(path: Path, text: str) -> None:
    """Write a whole file beside the old one, and put it in its place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as written:
            written.write(text)
            written.flush()
            os.fsync(written.fileno())
        if path.exists():
            os.chmod(name, path.stat().st_mode)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
