"""How long keys, focus and resizing take in a chat of 300 turns with long code, from the terminal's side.

python -m tests.functional.app.ui.bench_transcript [TURNS]

The app runs in a pseudo-terminal of 120 x 40 on an engine that does nothing. A time is from the bytes of the event to
the last byte of the frame that follows it; beside it stands the time that the app had a core meanwhile, which does not
depend on what else runs.
"""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import statistics
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from app.engine_link.bridge import EngineBridge
from app.storage.records import ASSISTANT, USER, ChatPlace, ChatRecord, TurnRecord
from app.storage.store import ChatStore
from app.ui.chat_app import ChatApp
from tests.functional.app.fake_engine import ObedientEngine, stats
from tests.functional.app.own_settings import settings_in

NUM_ROUNDS = 15
QUIET_S = 0.12
LIMITS_MS = {"key press": 50, "turn focus": 150, "window focus": 150, "resize": 150, "page up": 150}


def keep_long_chat(folder: Path, num_turns: int) -> str:
    """A chat of questions and answers with 60 lines of code each; returns its id."""
    from app.storage import answer_record

    chat = ChatRecord("code", "", "demo")
    turns = []
    for number in range(num_turns // 2):
        code = "\n".join(f"def f_{number}_{line}(x: int) -> int:\n    return x + {line}" for line in range(30))
        text = f"Here is *part {number}*:\n\n```python\n{code}\n```\n\n1. one\n2. two\n\nThat is all."
        turns.append(TurnRecord(chat.chat_id, 2 * number, USER, f"Write part {number}, please."))
        answer = TurnRecord(chat.chat_id, 2 * number + 1, ASSISTANT, text, mode_label="exact")
        answer.stats = answer_record.as_json(stats(400), "stop")
        turns.append(answer)
    store = ChatStore(folder / "chats.db")
    store.save_whole(chat, turns)
    store.close()
    return chat.chat_id


def run_app(folder: Path, chat_id: str) -> None:
    """The app with that chat, in this terminal."""
    settings = settings_in(folder)
    bridge = EngineBridge(ObedientEngine, settings.engine_config())
    bridge.start()
    app = ChatApp(bridge, ChatStore(folder / "chats.db"), settings)
    app.call_later(lambda: app.set_timer(0.5, lambda: app.call_later(app.open_place, ChatPlace(chat_id))))
    app.run()


class Terminal:
    """The other end of the app's pseudo-terminal."""

    def __init__(self, folder: Path, chat_id: str) -> None:
        self.master, end_of_app = pty.openpty()
        termios.tcsetwinsize(self.master, (40, 120))
        command = [sys.executable, "-m", "tests.functional.app.ui.bench_transcript", "--app", str(folder), chat_id]
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "MOE_CHAT_HOME": str(folder)}
        self.app = subprocess.Popen(
            command, stdin=end_of_app, stdout=end_of_app, stderr=end_of_app, env=environment, start_new_session=True
        )
        os.close(end_of_app)

    def read_until_quiet(self, quiet_s: float = QUIET_S, patience_s: float = 5.0) -> tuple[bytes, float]:
        """What was drawn, and when the last byte of it came."""
        drawn, at = b"", 0.0
        deadline = time.perf_counter() + patience_s
        while time.perf_counter() < deadline:
            ready, _, _ = select.select([self.master], [], [], quiet_s if drawn else patience_s)
            if not ready:
                break
            drawn, at = drawn + os.read(self.master, 1 << 16), time.perf_counter()
        return drawn, at

    def time(self, event: Callable[[], object]) -> tuple[float, float]:
        """Milliseconds from an event to the last byte of the frame that follows it, and those on a core."""
        begun, on_core_before = time.perf_counter(), self._on_core_ms()
        event()
        drawn, at = self.read_until_quiet()
        assert drawn, "nothing was drawn"
        return 1000 * (at - begun), self._on_core_ms() - on_core_before

    def _on_core_ms(self) -> float:
        tasks = Path(f"/proc/{self.app.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e6

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def resize(self, columns: int) -> None:
        termios.tcsetwinsize(self.master, (40, columns))
        self.app.send_signal(signal.SIGWINCH)

    def close(self) -> None:
        """End the app."""
        self.type(b"\x11")
        with contextlib.suppress(OSError):
            self.read_until_quiet(1.0, 3.0)
        self.app.kill()
        self.app.wait()


def measure(terminal: Terminal) -> dict[str, list[tuple[float, float]]]:
    """Every kind of event, in turn."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in LIMITS_MS}
    for number in range(NUM_ROUNDS):
        times["key press"].append(terminal.time(lambda: terminal.type(b"x")))
        times["turn focus"].append(terminal.time(lambda: terminal.type(b"\x1b[1;3A")))
        terminal.time(lambda: terminal.type(b"\x1b[1;3B"))
        times["window focus"].append(terminal.time(lambda: terminal.type(b"\x1b[O")))
        terminal.time(lambda: terminal.type(b"\x1b[I"))
        times["resize"].append(terminal.time(lambda columns=118 - number % 5: terminal.resize(columns)))
    for _ in range(NUM_ROUNDS):
        times["page up"].append(terminal.time(lambda: terminal.type(b"\x1b[5~")))
    return times


def main() -> None:
    """Measure and print; with --app be the app that is measured."""
    if sys.argv[1:2] == ["--app"]:
        run_app(Path(sys.argv[2]), sys.argv[3])
        return
    num_turns = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    with TemporaryDirectory() as name:
        begun = time.perf_counter()
        terminal = Terminal(Path(name), keep_long_chat(Path(name), num_turns))
        try:
            drawn = b""
            while b"That is all." not in drawn:
                drawn += terminal.read_until_quiet(0.5)[0]
            print(f"{num_turns} turns, open after {time.perf_counter() - begun:.1f} s (0.5 s of waiting in it twice)")
            for kind, taken in measure(terminal).items():
                wall, on_core = zip(*taken, strict=True)
                print(
                    f"{kind:<14}median {statistics.median(wall):6.1f} ms   worst {max(wall):6.1f} ms"
                    f"   on a core {statistics.median(on_core):6.1f} ms   limit {LIMITS_MS[kind]} ms"
                )
        finally:
            terminal.close()


if __name__ == "__main__":
    main()
