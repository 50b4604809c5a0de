"""The child's side: `python -P -m engine.process.server FD PARENT_PID`.

Main thread: the engine (see `worker`). Control thread: commands; cancel, mode and close act at once, also in load and
prefill. Sender thread: ordered events and the latest snapshot; it repeats the last progress of unfinished work, so that
a reader hears something at least once a second. Whatever it prints goes to the log; a log that cannot be written is
ignored.

The process ends with its parent: by signal, and by the end of the connection. SIGINT is ignored, since the parent
decides about ctrl+c; SIGTERM ends the process at once, by the system's default.
"""

from __future__ import annotations

import os
import signal
import sys
from multiprocessing.connection import Connection

from engine.child_process import end_with_parent, make_log_unfailing
from engine.events import LoadProgress
from engine.process.mailboxes import Inbox, Outbox
from engine.process.worker import Worker

_SWITCH_INTERVAL_S = 0.0005
"""A link thread that has a copy to report waits this long for the interpreter at most; Python's default is 5 ms."""


def main() -> None:
    """Runs until the connection ends or Close arrives."""
    connection, parent_pid = Connection(int(sys.argv[1])), int(sys.argv[2])
    end_with_parent(parent_pid)
    make_log_unfailing()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    outbox = Outbox(connection)
    inbox = Inbox(connection)
    outbox.put(LoadProgress("starting the engine (torch, transformers)", 0, 0, ""))
    Worker(inbox, outbox).run()
    outbox.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
