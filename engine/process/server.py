"""The child's side: `python -P -m engine.process.server FD PARENT_PID`.

Main thread: the engine (see `worker`). Control thread: commands; cancel, mode and close act at once, also in load and
prefill. Sender thread: ordered events and the latest snapshot; it repeats the last progress of unfinished work, so that
a reader hears something at least once a second. The process ends with its parent: by signal, and by the end of the
connection.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from multiprocessing.connection import Connection

from engine.events import LoadProgress
from engine.process.mailboxes import Inbox, Outbox
from engine.process.worker import Worker

_SWITCH_INTERVAL_S = 0.0005
"""A link thread that has a copy to report waits this long for the interpreter at most; Python's default is 5 ms."""


def main() -> None:
    """Runs until the connection ends or Close arrives."""
    connection, parent = Connection(int(sys.argv[1])), int(sys.argv[2])
    _die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    outbox = Outbox(connection)
    inbox = Inbox(connection)
    outbox.put(LoadProgress("starting the engine (torch, transformers)", 0, 0, ""))
    Worker(inbox, outbox).run()
    outbox.flush()
    os._exit(0)


def _die_with(parent: int) -> None:
    """Linux: SIGKILL when the parent dies. Elsewhere the connection's end does it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
