"""Memory and cores of this machine, and the memory of this process. Exact on Linux; elsewhere an estimate."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

_CGROUP_V2 = Path("/sys/fs/cgroup")
_CGROUP_V1 = Path("/sys/fs/cgroup/memory")

_peaks_before_reset: list[int] = [0, 0]


def available_bytes() -> int:
    """The most this process may hold: free or reclaimable memory within its memory group, plus what it holds now."""
    held = rss_bytes()
    candidates = [_meminfo("MemAvailable") + held, *_group_limits()]
    return min(candidates)


def rss_bytes() -> int:
    """Resident set of this process now."""
    status = _status("VmRSS")
    return status if status is not None else peak_rss_bytes()


def peak_rss_bytes(*, since_reset: bool = False) -> int:
    """Largest resident set so far. (`ru_maxrss` would carry the parent's peak over fork and exec.)"""
    status = _status("VmHWM")
    if status is not None:
        return status if since_reset else max(status, *_peaks_before_reset)
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def reset_peak_rss() -> bool:
    """Restarts the peak of `peak_rss_bytes(since_reset=True)`. False: the system does not support it."""
    peak_bytes = _status("VmHWM")
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    _peaks_before_reset.append(peak_bytes or 0)
    return peak_bytes is not None


def num_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def total_bytes() -> int:
    """Memory this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def group_limit_bytes() -> int | None:
    """What the memory groups this process is in allow at most; None: they set no limit."""
    return min(_group_limits(), default=None)


def _status(name: str) -> int | None:
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def _meminfo(name: str) -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _group_limits() -> list[int]:
    """Limits of the memory groups this process is in, version 1 and 2."""
    limits = []
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            limits += _limits_above(_CGROUP_V1, path, "memory.limit_in_bytes")
        elif controllers == "":
            limits += _limits_above(_CGROUP_V2, path, "memory.max")
    return limits


def _limits_above(root: Path, path: str, name: str) -> list[int]:
    limits = []
    folder = root / path.lstrip("/")
    while folder == root or root in folder.parents:
        try:
            text = (folder / name).read_text().strip()
        except OSError:
            text = "max"
        if text != "max" and int(text) < 1 << 60:
            limits.append(int(text))
        folder = folder.parent
    return limits
