"""What identifies a checkpoint: the names, shapes and types of its tensors, and samples of its bytes.

A profile or a trace is bound to it: routing learnt from one model says nothing about another.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from engine.checkpoint.index import TensorEntry, read_file, read_index

_NUM_SAMPLES = 32
_SAMPLE_BYTES = 4096


def fingerprint(folder: Path) -> str:
    """A hex digest of 32 characters; reads headers and some hundred kilobytes. Raises CheckpointError."""
    entries = [entry for _, entry in sorted(read_index(folder).items())]
    digest = hashlib.sha256()
    for entry in entries:
        digest.update(json.dumps([entry.key, str(entry.dtype), entry.shape]).encode())
    for entry in entries[:: max(len(entries) // _NUM_SAMPLES, 1)]:
        digest.update(_sample(entry))
    return digest.hexdigest()[:32]


def _sample(entry: TensorEntry) -> bytes:
    """Bytes from the middle of a tensor: beginnings are often alike. Raises CheckpointError."""
    count = min(_SAMPLE_BYTES, entry.num_bytes)
    sample = bytearray(count)
    if count:
        read_file(entry.path, entry.file_offset + (entry.num_bytes - count) // 2, memoryview(sample))
    return bytes(sample)
