"""The JSON files of a model folder, each within its limits of size. Light: no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from engine.errors import CheckpointError
from offload.bounded_json import Limits, NotReadable, parse_object
from offload.regular_file import read_whole, why

REFETCH: Final = "Fetch the file again, or restore it from where the model came from."
"""What to do about a damaged file."""

SETTINGS: Final = Limits(max_bytes=4 << 20, has_infinity=True)
"""config.json, generation_config.json and the tokenizer's small files."""
TOKENIZER_SETTINGS: Final = Limits(max_bytes=16 << 20, has_infinity=True)
"""tokenizer_config.json, which may describe thousands of added tokens."""
TENSOR_LIST: Final = Limits(max_bytes=48 << 20, max_depth=8, max_values=2_000_000)
"""An index, or the header of a safetensors file: up to some 250,000 tensors."""


def read_json_object(path: Path, limits: Limits = SETTINGS) -> dict[str, Any]:
    """The object that a file holds; its keys and values are the reader's to check.

    Raises CheckpointError, which names the file, when it is missing, no regular file, too large or no JSON object.
    """
    try:
        return parse_object(read_whole(path, limits.max_bytes), limits)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {why(error)}.", REFETCH) from error
    except NotReadable as error:
        raise CheckpointError(f"{path} cannot be read: {error}.", REFETCH) from error
