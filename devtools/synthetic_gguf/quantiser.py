"""ggml's own quantiser, from the shared object inside the wheel `xllamacpp`; the pure Python one takes hours."""

from __future__ import annotations

import ctypes
import importlib.util
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
_THREADS = 2
_ROWS_AT_ONCE = 512


@cache
def _quantize_chunk() -> Any:
    """`ggml_quantize_chunk`. Raises SystemExit without the wheel."""
    spec = importlib.util.find_spec("xllamacpp")
    if spec is None or spec.origin is None:
        raise SystemExit("Quantising takes the package xllamacpp: pip install xllamacpp")
    library = ctypes.CDLL(str(next(Path(spec.origin).parent.glob("*.so"))))
    function = library.ggml_quantize_chunk
    function.restype = ctypes.c_size_t
    pointer, int64 = ctypes.c_void_p, ctypes.c_int64
    function.argtypes = [ctypes.c_int, pointer, pointer, int64, int64, int64, pointer]
    return function


def row_bytes(stored: GGMLQuantizationType, num_columns: int) -> int:
    """Bytes of one row."""
    block_size, block_bytes = GGML_QUANT_SIZES[stored]
    assert num_columns % block_size == 0, f"{num_columns} columns are no whole number of {stored.name} blocks"
    return int(num_columns // block_size * block_bytes)


def quantise(values: Floats, stored: GGMLQuantizationType) -> Bytes:
    """[rows, columns] as [rows, bytes of a row]."""
    if stored is GGMLQuantizationType.F32:
        return np.ascontiguousarray(values, np.float32).view(np.uint8)
    num_rows, num_columns = values.shape
    values = np.ascontiguousarray(values, np.float32)
    out = np.empty((num_rows, row_bytes(stored, num_columns)), np.uint8)
    run = _quantize_chunk()

    def piece(first: int) -> None:
        rows = min(_ROWS_AT_ONCE, num_rows - first)
        source, target = values[first:].ctypes.data, out[first:].ctypes.data
        written = run(int(stored), source, target, 0, rows, num_columns, None)
        assert written == rows * out.shape[1], f"{stored.name}: {written} bytes"

    run(int(stored), values.ctypes.data, out.ctypes.data, 0, 1, num_columns, None)  # makes its tables once
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(piece, range(0, num_rows, _ROWS_AT_ONCE)))
    return out
