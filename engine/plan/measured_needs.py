"""What measuring a model on shapes gave, kept in the user's cache folder so that the next load need not measure again.

One JSON file for all models. Each entry carries a checksum: an entry that is damaged, or a file that is, counts as not
there and is written anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from engine.demo.location import cache_root
from engine.plan.model_plan import GrowingBytes
from offload.atomic_file import replaced
from offload.bounded_json import Limits, NotReadable, parse_object
from offload.regular_file import read_whole

MAX_MODELS: Final = 32
"""Those measured last are kept."""
_LIMITS: Final = Limits(max_bytes=1 << 20, max_depth=8)


class NeedsOfForward(NamedTuple):
    """Of one chunk length, in bytes."""

    kv: GrowingBytes
    live: GrowingBytes
    """Temporary tensors of a forward without routed experts."""


@dataclass(frozen=True, slots=True)
class MeasuredNeeds:
    """Of one model. `by_chunk_tok` grows as chunk lengths are measured."""

    top_ks: tuple[int, ...]
    """Per MoE layer."""
    uses_library_cache: bool
    by_chunk_tok: dict[int, NeedsOfForward] = field(default_factory=dict)


def read_measured(key: str) -> MeasuredNeeds | None:
    """What was kept under `key`; None where there is nothing that can be used."""
    entry = _read_all().get(key)
    if not isinstance(entry, dict) or entry.get("sum") != _checksum(key, entry):
        return None
    try:
        chunks = {int(chunk_tok): _needs(values) for chunk_tok, values in entry["chunks"].items()}
        return MeasuredNeeds(tuple(map(int, entry["top_ks"])), bool(entry["uses_library_cache"]), chunks)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def keep_measured(key: str, needs: MeasuredNeeds) -> None:
    """Writes the file anew with this entry as its last one. What the disk refuses is left."""
    entry: dict[str, Any] = {
        "top_ks": needs.top_ks,
        "uses_library_cache": needs.uses_library_cache,
        "chunks": {str(chunk_tok): [*of.kv, *of.live] for chunk_tok, of in needs.by_chunk_tok.items()},
    }
    entry["sum"] = _checksum(key, entry)
    kept = {name: value for name, value in _read_all().items() if name != key} | {key: entry}
    with suppress(OSError), replaced(_path()) as file:
        file.write(json.dumps(dict([*kept.items()][-MAX_MODELS:])).encode())


def _path() -> Path:
    return cache_root() / "measured-needs.json"


def _read_all() -> dict[str, Any]:
    try:
        return parse_object(read_whole(_path(), _LIMITS.max_bytes), _LIMITS)
    except (OSError, NotReadable):
        return {}


def _checksum(key: str, entry: Mapping[str, Any]) -> str:
    content = json.dumps([key, {name: value for name, value in entry.items() if name != "sum"}], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def _needs(values: Any) -> NeedsOfForward:
    numbers = [int(value) for value in values]
    if len(numbers) != 4 or min(numbers) < 0:
        raise ValueError
    return NeedsOfForward(GrowingBytes(*numbers[:2]), GrowingBytes(*numbers[2:]))
