"""Runs that have ended, kept on disk until the whole bench has: one that was interrupted goes on where it was."""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Final, NamedTuple

from engine.commands.bench.peers.request import SideRequest
from engine.commands.bench.peers.run import PeerRun
from engine.demo.location import cache_root
from offload.regular_file import read_whole

_MAX_BYTES: Final = 16 << 20
_KEPT_S: Final = 86_400


class RunKey(NamedTuple):
    """Which run of a bench: `limit_bytes` None for no limit."""

    round_number: int
    limit_bytes: int | None
    side: str


class KeptRuns:
    """The runs of one bench by what was asked for: another file, prompt, length or setting has its own."""

    def __init__(self, request: SideRequest, version: str) -> None:
        """Reads what is kept; a file that cannot be read holds nothing, and one that is a day old is deleted."""
        state = Path(request.config.model).stat()
        asked = [request.to_json(), state.st_size, state.st_mtime_ns, version]
        name = hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:24]
        self._path = cache_root() / "bench-peers" / f"{name}.jsonl"
        self.runs: dict[RunKey, PeerRun] = {}
        with suppress(OSError, ValueError, TypeError, KeyError):
            if time.time() - self._path.stat().st_mtime > _KEPT_S:
                self.forget()
            for line in read_whole(self._path, _MAX_BYTES).decode().splitlines():
                entry = json.loads(line)
                self.runs[RunKey(*entry["key"])] = PeerRun(**entry["run"])

    def add(self, key: RunKey, run: PeerRun) -> None:
        """Keeps a run; without a disk to keep it on, only in memory."""
        self.runs[key] = run
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, "run": asdict(run)}) + "\n")

    def forget(self) -> None:
        """Deletes what is on disk: the bench is complete."""
        with suppress(OSError):
            self._path.unlink()
