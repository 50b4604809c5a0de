"""The values of a GGUF header, read within limits from an untrusted file.

Source of the format: the GGUF specification (ggml's `docs/gguf.md`), versions 2 and 3, little-endian.
"""

from __future__ import annotations

import os
import struct
import sys
from array import array
from pathlib import Path
from typing import Any, Final, TypeAlias

from engine.checkpoint.json_file import REFETCH
from engine.errors import CheckpointError
from offload.bounded_json import shown
from offload.regular_file import read_range

MAX_HEADER_BYTES: Final = 96 << 20
_MAX_STRING_BYTES: Final = 48 << 20
_MAX_ARRAY_VALUES: Final = 4 << 20
MAX_KEY_BYTES: Final = 65_535
_WINDOW_BYTES = 1 << 20
"""The header's length is not stored: this much of the file is read at a time."""

_U64 = struct.Struct("<Q")
_SCALARS: Final = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    10: _U64,
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_BOOL, _STRING, _ARRAY = 7, 8, 9
_ARRAY_CODES: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}


class Strings:
    """An array of strings as it lies in the file: hundreds of thousands, decoded only where they are needed."""

    def __init__(self, where: str, content: bytes, count: int) -> None:
        """`where` names file and key, for errors."""
        self._where, self._content, self._count = where, content, count

    def __len__(self) -> int:
        return self._count

    def decode(self) -> list[str]:
        """All of them. Raises CheckpointError where one is not UTF-8 text."""
        content, position, texts = self._content, 0, []
        try:
            for _ in range(self._count):
                begin = position + 8
                position = begin + _U64.unpack_from(content, position)[0]
                texts.append(content[begin:position].decode())
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{self._where}: value {len(texts)} is not UTF-8 text.", REFETCH) from error
        return texts


Numbers: TypeAlias = "array[Any]"
"""An array of int or of float."""
Value: TypeAlias = "bool | int | float | str | Strings | Numbers"


class HeaderReader:
    """Reads a header from its beginning on. Holds the file's descriptor, which stays its caller's to close."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.file_bytes = os.fstat(fd).st_size
        self.position = 0
        """Bytes read."""
        self._fd = fd
        self._loaded = bytearray()

    def number(self, kind: int) -> int | float:
        """The next number, of a scalar type's number. Raises CheckpointError, as all that follow do, and OSError."""
        form = _SCALARS[kind]
        begin = self._advance(form.size)
        found: int | float = form.unpack_from(self._loaded, begin)[0]
        return found

    def count(self) -> int:
        """The next unsigned number of 64 bits."""
        begin = self._advance(8)
        found: int = _U64.unpack_from(self._loaded, begin)[0]
        return found

    def take(self, num_bytes: int) -> bytes:
        """The next bytes."""
        begin = self._advance(num_bytes)
        return bytes(memoryview(self._loaded)[begin : begin + num_bytes])

    def text(self, what: str, max_bytes: int = _MAX_STRING_BYTES) -> str:
        """The next string. `what` names it in errors."""
        num_bytes = self.count()
        if num_bytes > max_bytes:
            raise self.damaged(f"{what} has {num_bytes} bytes, where at most {max_bytes} are read")
        try:
            return self.take(num_bytes).decode()
        except UnicodeDecodeError as error:
            raise self.damaged(f"{what} is not UTF-8 text") from error

    def value(self, key: str) -> Value:
        """The next value of the metadata: its type, then itself."""
        kind = int(self.number(4))
        if kind == _STRING:
            return self.text(f"the value of {shown(key)}")
        if kind == _BOOL:
            return bool(self._flags(key, 1)[0])
        if kind == _ARRAY:
            return self._array(key)
        if kind not in _SCALARS:
            raise self.damaged(f"{shown(key)} is of the type {kind}, which GGUF does not have")
        return self.number(kind)

    def damaged(self, problem: str) -> CheckpointError:
        """The error that says so of this file."""
        return CheckpointError(f"{self.path}: {problem}.", REFETCH)

    def _array(self, key: str) -> Value:
        kind, count = int(self.number(4)), self.count()
        if kind == _ARRAY:
            raise self.damaged(f"{shown(key)} is a list of lists, which is not read")
        if kind != _STRING and kind not in _ARRAY_CODES:
            raise self.damaged(f"{shown(key)} is a list of the type {kind}, which GGUF does not have")
        smallest = 8 if kind == _STRING else array(_ARRAY_CODES[kind]).itemsize
        if count > _MAX_ARRAY_VALUES:
            raise self.damaged(f"{shown(key)} has {count} values, where at most {_MAX_ARRAY_VALUES} are read")
        if count * smallest > self.file_bytes - self.position:
            raise self.damaged(f"{shown(key)} claims {count} values, more than the file of {self.file_bytes} bytes has")
        if kind == _STRING:
            return self._strings(key, count)
        if kind == _BOOL:
            return self._flags(key, count)
        numbers: Numbers = array(_ARRAY_CODES[kind], self.take(count * smallest))
        if sys.byteorder == "big":
            numbers.byteswap()
        return numbers

    def _flags(self, key: str, count: int) -> Numbers:
        flags: Numbers = array("B", self.take(count))
        if any(flag > 1 for flag in flags):
            raise self.damaged(f"{shown(key)} holds {max(flags)}, where true or false (1 or 0) belongs")
        return flags

    def _strings(self, key: str, count: int) -> Strings:
        """Steps over the strings, so that the lengths of all of them have been checked."""
        begin = end = self.position
        loaded, unpack, left = self._loaded, _U64.unpack_from, count
        while left:
            try:
                # Hundreds of thousands of them: what is not there yet shows when it is missed.
                for left in range(left, 0, -1):  # noqa: B007, B020 (goes on where the last round ended)
                    end += 8 + unpack(loaded, end)[0]
                left = 0
            except (struct.error, OverflowError):
                if end > self.file_bytes:
                    raise self._cut_off(f"a string of {shown(key)}", end) from None
                self._load(end + 8)
        if end > self.file_bytes:
            raise self._cut_off(f"a string of {shown(key)}", end)
        return Strings(f"{self.path}: {key}", self.take(end - begin), count)

    def _advance(self, num_bytes: int) -> int:
        """Steps over bytes and returns where they begin in `_loaded`, which then holds them."""
        begin, end = self.position, self.position + num_bytes
        if end > len(self._loaded):
            self._load(end)
        self.position = end
        return begin

    def _load(self, end: int) -> None:
        if end > self.file_bytes:
            raise self._cut_off("the header", end)
        if end > MAX_HEADER_BYTES:
            raise self.damaged(f"its header has more than {MAX_HEADER_BYTES} bytes, which are not read")
        have = len(self._loaded)
        until = min(max(end, have + _WINDOW_BYTES), self.file_bytes)
        try:
            self._loaded += read_range(self._fd, have, until - have)
        except EOFError as error:
            raise self.damaged(str(error)) from error

    def _cut_off(self, what: str, end: int) -> CheckpointError:
        return CheckpointError(
            f"{self.path} is cut off: {what} ends at byte {shown(end)}, the file at {self.file_bytes}.", REFETCH
        )
