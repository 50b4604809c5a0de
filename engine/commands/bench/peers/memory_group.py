"""A memory group of the system: everything that its processes and their children hold, the page cache included."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_VERSION_1, _VERSION_2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
_REMOVAL_TRIES, _REMOVAL_WAIT_S = 50, 0.1


class NoGroupError(Exception):
    """Groups cannot be made here; its text says why."""


@dataclass(frozen=True, slots=True)
class GroupUse:
    """What a group has seen."""

    peak_bytes: int | None
    """None where the system does not keep it."""
    num_killed: int
    """Processes that the system killed because of the limit."""


class MemoryGroup:
    """Made empty; `limit_bytes` None only measures. Raises NoGroupError where that takes root, or there are none."""

    def __init__(self, name: str, limit_bytes: int | None) -> None:
        self._is_version_1 = (_VERSION_1 / "memory.limit_in_bytes").exists()
        root = _VERSION_1 if self._is_version_1 else _VERSION_2
        self._folder = root / f"moe-chat-{name}-{os.getpid()}"
        try:
            self._require_memory(root)
            self._folder.mkdir()
        except OSError as error:
            raise NoGroupError(f"a memory group cannot be made ({error.strerror}): it takes root") from error
        try:
            self._limit(limit_bytes)
        except OSError as error:
            self.remove()
            raise NoGroupError(f"a memory group cannot be limited ({error.strerror})") from error

    @property
    def procs_file(self) -> Path:
        """Who writes its process id here joins, and so do all its later children."""
        return self._folder / "cgroup.procs"

    def use(self) -> GroupUse:
        """So far."""
        peak, events = ("max_usage_in_bytes", "oom_control") if self._is_version_1 else ("peak", "events")
        peak_text = self._read(f"memory.{peak}").strip()
        counts = dict(line.split() for line in self._read(f"memory.{events}").splitlines())
        return GroupUse(int(peak_text) if peak_text.isdecimal() else None, int(counts.get("oom_kill", 0)))

    def remove(self) -> None:
        """Waits some seconds for its processes to be gone; a group that stays is empty, and does no harm."""
        for _ in range(_REMOVAL_TRIES):
            with suppress(OSError):
                self._folder.rmdir()
                return
            time.sleep(_REMOVAL_WAIT_S)

    def _require_memory(self, root: Path) -> None:
        if self._is_version_1:
            return
        controllers = root / "cgroup.subtree_control"
        if not controllers.exists():
            raise NoGroupError("this system has no memory groups")
        if "memory" not in controllers.read_text().split():
            controllers.write_text("+memory")

    def _limit(self, limit_bytes: int | None) -> None:
        if limit_bytes is None:
            return
        if self._is_version_1:
            (self._folder / "memory.limit_in_bytes").write_text(str(limit_bytes))
        else:
            (self._folder / "memory.max").write_text(str(limit_bytes))
            with suppress(FileNotFoundError):  # a system without swap
                (self._folder / "memory.swap.max").write_text("0")

    def _read(self, name: str) -> str:
        try:
            return (self._folder / name).read_text()
        except OSError:
            return ""
