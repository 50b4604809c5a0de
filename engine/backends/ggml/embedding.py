"""The rows of the embedding table: from memory where the table is resident, else read from the file."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from engine.backends.ggml.compute import Compute, Scratch
from engine.backends.ggml.graph import GraphBuilder
from engine.backends.ggml.graph_run import run_once
from engine.backends.ggml.library import Ggml
from engine.backends.ggml.memory import Memory, values
from engine.backends.ggml.model_spec import ModelSpec
from engine.backends.ggml.tensor_types import I32
from engine.errors import CheckpointError
from offload.regular_file import open_regular, read_fully, why

MAX_ROWS = 256
"""Rows that are read and converted at once."""


class Embedding:
    """Looks up token ids. A table that is not the output's too stays in its file: a token needs one row of it."""

    def __init__(self, ggml: Ggml, compute: Compute, scratch: Scratch, spec: ModelSpec, address: int | None) -> None:
        """`address`: of the table in memory; None: it is read from its file. Raises CheckpointError."""
        self._ggml, self._compute, self._scratch = ggml, compute, scratch
        self._weight, self._address = spec.embedding, address
        self._hidden_dim, self._vocabulary_tok = spec.hidden_dim, spec.vocabulary_tok
        self._scale = spec.embedding_scale
        self._row_bytes = self._weight.num_bytes // spec.vocabulary_tok
        self._fd: int | None = None
        if address is None:
            self._rows = Memory(self._row_bytes * MAX_ROWS)
            try:
                self._fd = open_regular(self._weight.path)
                if hasattr(os, "posix_fadvise"):  # a row is read, and not what follows it
                    os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_RANDOM)
            except OSError as error:
                raise CheckpointError(f"{self._weight.path}: {why(error)}.", "Fetch the model again.") from error
        ids = Memory(MAX_ROWS * 4)
        self._ids_at, self._ids = ids.address, values(ids.bytes, np.int32, MAX_ROWS)
        self._one_builder, self._one_scratch = GraphBuilder(ggml, 8, 1, 8), Scratch(ggml)
        self._one = self._one_at = 0

    def read(self, tokens: Sequence[int], address: int) -> None:
        """Writes the rows of `tokens`, scaled, to `address` as float32 [hidden, tokens]. Raises CheckpointError, and
        ValueError for an id outside the vocabulary."""
        if not tokens or min(tokens) < 0 or max(tokens) >= self._vocabulary_tok:
            raise ValueError(f"ids outside a vocabulary of {self._vocabulary_tok}: {list(tokens)[:8]}")
        for start in range(0, len(tokens), MAX_ROWS):
            self._read(tokens[start : start + MAX_ROWS], address + start * self._hidden_dim * 4)

    def _read(self, tokens: Sequence[int], address: int) -> None:
        if self._address is None:
            self._fetch(tokens)
            self._ids[: len(tokens)] = range(len(tokens))
        else:
            self._ids[: len(tokens)] = tokens
        if len(tokens) == 1 and address == self._one_at:
            self._compute.run(self._one)
            return
        run_once(
            *(self._ggml, self._compute, self._scratch, 8),
            lambda builder: self._graph(builder, len(tokens), address),
        )

    def keep_graph(self, address: int) -> None:
        """Builds the graph that reads one row to `address` once for all: decode reads a row a token."""
        self._one = self._graph(self._one_builder, 1, address)
        self._one_scratch.allocate(self._one)
        self._one_at = address

    def _graph(self, builder: GraphBuilder, num_tok: int, address: int) -> int:
        num_rows, table_at = self._vocabulary_tok, self._address
        if table_at is None:
            num_rows, table_at = MAX_ROWS, self._rows.address
        table = builder.new_at(table_at, self._weight.type_id, self._hidden_dim, num_rows)
        rows = builder.scaled(builder.read_rows(table, builder.new_at(self._ids_at, I32, num_tok)), self._scale)
        return builder.graph(builder.placed(rows, address))

    def _fetch(self, tokens: Sequence[int]) -> None:
        assert self._fd is not None, "open until closed"
        whole = memoryview(self._rows.bytes)  # type: ignore[arg-type]  # numpy's stubs know buffers from Python 3.12 on
        try:
            for place, token in enumerate(tokens):
                target = whole[place * self._row_bytes : (place + 1) * self._row_bytes]
                read_fully(self._fd, self._weight.file_offset + token * self._row_bytes, [target])
        except (OSError, EOFError) as error:
            raise CheckpointError(f"{self._weight.path} cannot be read: {error}.", "Fetch the model again.") from error

    def close(self) -> None:
        """Closes the file and frees the graph. Safe to call twice."""
        self._one_at = 0
        self._one_builder.close()
        self._one_scratch.close()
        if self._fd is not None:
            with_fd, self._fd = self._fd, None
            os.close(with_fd)
