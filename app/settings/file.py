"""The settings file: read with what is wrong in it said, written atomically with what is not ours kept.

A file that is no TOML is set aside under another name, never lost. Comments, order and unknown keys survive a change,
and so does what another instance wrote meanwhile: a change is made in the file as it is then.
"""

from __future__ import annotations

import os
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from app.settings.setting import Value

_HEAD = "Settings of moe-chat. The app changes them too; what is not set has its default."


class ReadResult(NamedTuple):
    """What the file holds, by table and name, and what there is to say about it."""

    tables: dict[str, dict[str, object]]
    problems: tuple[str, ...]


class SettingsFile:
    """One TOML file of tables. It need not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_unreadable = False

    @property
    def exists(self) -> bool:
        """Something was saved before."""
        return self.path.is_file()

    def read(self) -> ReadResult:
        """Read it. Raises nothing."""
        try:
            parsed = tomllib.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return ReadResult({}, ())
        except OSError as error:
            self._is_unreadable = True
            return ReadResult({}, (f"The settings {self.path} cannot be read ({error.strerror}); the defaults hold.",))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            return ReadResult({}, (self._set_aside(str(error)),))
        tables = {name: table for name, table in parsed.items() if isinstance(table, dict)}
        strays = tuple(
            f"The settings have {name!r} outside a table; it is left as it is." for name in parsed.keys() - tables
        )
        return ReadResult(tables, strays)

    def write(self, changes: Mapping[tuple[str, str], Value | None]) -> None:
        """Set (table, name) to a value; None takes it out. Raises OSError; the file is whole whatever happens."""
        import tomlkit  # 30 ms: not before the first change
        from tomlkit.exceptions import TOMLKitError

        if self._is_unreadable:
            raise PermissionError(13, "it could not be read, and is not written over")
        try:
            document = tomlkit.parse(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            document = tomlkit.document()
            document.add(tomlkit.comment(_HEAD))
        except (TOMLKitError, UnicodeDecodeError) as error:
            self._set_aside(str(error))
            document = tomlkit.document()
        for (table, name), value in changes.items():
            if value is not None:
                if not isinstance(document.get(table), dict):
                    document[table] = tomlkit.table()
                document[table][name] = value
            elif isinstance(document.get(table), dict):
                document[table].pop(name, None)
        _replace(self.path.resolve(), tomlkit.dumps(document))

    def _set_aside(self, why: str) -> str:
        """Give a damaged file another name; returns what to tell the user."""
        number = 1
        while (aside := self.path.with_name(f"{self.path.name}.damaged-{number}")).exists():
            number += 1
        try:
            self.path.rename(aside)
        except OSError as error:
            self._is_unreadable = True
            return f"The settings {self.path} are damaged ({why}), and could not be set aside ({error.strerror})."
        return f"The settings were damaged ({why}). They were set aside as {aside}; the defaults hold."


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
