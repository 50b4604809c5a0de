"""A tensor as it is stored in a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, Final, NamedTuple

# How a tensor may be made of stored ones (see `made_weights`):
FLOATS: Final = "floats"
"""A vector as float32. One part [values]."""
FLOATS_IN_PAIRS: Final = "floats in pairs"
"""The same, in the order of `made_weights.in_pairs`."""
TURNED: Final = "turned"
"""One part, of which columns are taken as rows: [out, in] -> [in, out]."""
BLOCKS: Final = "blocks"
"""MXFP4 of two parts: values uint8 [16, blocks, rows], scales uint8 [blocks, rows]."""
BLOCKS_IN_PAIRS: Final = "blocks in pairs"
"""The same, with rows in the order of `in_pairs`."""
BLOCK_VALUES: Final = 32
"""Of MXFP4."""
FLOAT8: Final = "8-bit floats"
"""BF16 of two parts: values F8_E4M3, and what each block of `Made.block` [rows, columns] is multiplied with."""
ROWS: Final = "rows"
"""One part, in its own format, of which the rows of `Made.runs` are taken one after the other."""
ONE_MORE: Final = "one more"
"""A vector as float32, every value plus 1. One part."""
DECAY: Final = "decay"
"""A vector as float32, -exp(value). One part."""


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
    runs: tuple[tuple[int, int], ...] = ()
    """(first row, number of rows), see ROWS."""
    block: tuple[int, int] = (0, 0)
    """(rows, columns), see FLOAT8."""


def weights_of(attention: Any) -> Iterator[StoredWeight]:
    """The tensors among the fields of a dataclass."""
    values = (getattr(attention, field.name) for field in fields(attention))
    yield from (value for value in values if isinstance(value, StoredWeight))
