"""A tensor as it is stored in a file."""

from __future__ import annotations

from typing import NamedTuple


class StoredWeight(NamedTuple):
    """A tensor as it is stored, in a GGUF or a safetensors file."""

    name: str
    type_id: int
    """ggml's number of its format."""
    shape: tuple[int, ...]
    """In ggml's order: the row length first."""
    path: str
    file_offset: int
    num_bytes: int
    made: Made | None = None
    """It is made of others as it is read; its own place in a file is then that of the first of them."""

    def matrix(self, number: int) -> StoredWeight:
        """One of a stack [..., count]."""
        name, type_id, shape, path, file_offset, num_bytes, made = self
        part_bytes = num_bytes // shape[-1]
        if made is None:
            return StoredWeight(name, type_id, shape[:-1], path, file_offset + number * part_bytes, part_bytes)
        parts = tuple(part.matrix(number) for part in made.parts)
        return StoredWeight(
            name, type_id, shape[:-1], path, parts[0].file_offset, part_bytes, made._replace(parts=parts)
        )

    def row_halves(self) -> tuple[StoredWeight, StoredWeight]:
        """The first and the second half of a matrix's rows."""
        half = self._replace(shape=(self.shape[0], self.shape[1] // 2), num_bytes=self.num_bytes // 2)
        return half, half._replace(file_offset=self.file_offset + half.num_bytes)


class Made(NamedTuple):
    """How a tensor is made of stored ones; see `made_weights`."""

    kind: str
    parts: tuple[StoredWeight, ...]
    first: int = 0
    step: int = 1
    """Of their rows, `first` and every `step`th from there on are taken."""
