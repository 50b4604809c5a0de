"""Whether a shell above would resume this program once it is stopped."""

from __future__ import annotations

import os
from pathlib import Path


def has_job_control() -> bool:
    """A process of the same session, but of another job, stands above this one: a shell with job control.

    Without one, as where a terminal or a container runs the program directly, a stopped program is never continued
    (POSIX calls its process group orphaned). True where the system does not say.
    """
    session, group, process = os.getsid(0), os.getpgrp(), os.getppid()
    try:
        while process > 0:
            if os.getpgid(process) != group:
                return os.getsid(process) == session
            process = _parent(process)
    except ProcessLookupError:
        return False
    except (OSError, ValueError):
        return True
    return False


def _parent(process: int) -> int:
    """The parent of a process. Raises OSError where there is no /proc."""
    stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    return int(stat.rpartition(")")[2].split()[1])
