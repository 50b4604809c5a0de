"""A fake engine that lives on the clock, to look at the app without a model.

python -m tests.functional.app.scripted_engine [LAYERS EXPERTS]
"""

from __future__ import annotations

import random
import sys
import time
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

from app.engine_link.bridge import EngineBridge
from app.storage.store import ChatStore
from app.ui.chat_app import ChatApp
from engine.api import (
    BuildProfile,
    Cancel,
    Command,
    CountTokens,
    DeleteProfile,
    Load,
    SetDomain,
    SetMode,
    SetStrategy,
    Submit,
)
from engine.config import EXACT
from engine.events import (
    CANCELLED,
    LABEL_APPROX,
    LABEL_EXACT,
    STOP,
    Event,
    Failed,
    LoadProgress,
    ModeChanged,
    PrefillProgress,
    Profiles,
    ProfileState,
    StrategySet,
    TaskEnded,
    TaskProgress,
    TextDelta,
    TokensCounted,
    TurnEnded,
)
from tests.functional.app.fake_engine import MIB, READY, FakeEngine, counters, snapshot, stats
from tests.functional.app.own_settings import settings_in

ANSWER = """The capital of France is **Paris**, on the river Seine.

## Why it is the capital

1. It has been the seat of government since the *Middle Ages*.
2. Its position on the Seine made it a centre of trade.
3. Railways and roads were later built to meet there.

A short program that says so:

```python
def capital(country: str) -> str:
    # one country is enough here
    return {"France": "Paris"}.get(country, "unknown")
```

| city | people |
|---|---|
| Paris | 2.1 M |
| Lyon | 0.5 M |

Ask about another country, or press `f5` to see what *approximate* costs.
"""


class ScriptedEngine(FakeEngine):
    """Loads for a while, then answers at about 20 tokens a second."""

    def __init__(
        self, load_s: float = 2.0, token_s: float = 0.05, shape: tuple[int, int] = (30, 16), ttft_s: float = 0.5
    ) -> None:
        super().__init__()
        self._load_s, self._ttft_s, self._token_s, self._shape = load_s, ttft_s, token_s, shape
        self._loaded_from: float | None = None
        self._is_ready = False
        self._mode = EXACT
        self._request_id: int | None = None
        self._building: BuildProfile | None = None
        self._begun_at = 0.0
        self._pieces: list[str] = []
        self._num_tok = 0
        self._was_approximate = False
        self._recent: list[float] = []
        self._sequence = 0
        self._snapshot_at = 0.0

    def answer(self, command: Command) -> None:
        match command:
            case Load(config):
                self._loaded_from, self._mode = time.monotonic(), config.mode
            case Submit(request_id):
                words = ANSWER.replace(" ", " \0").split("\0")
                self._request_id, self._pieces, self._num_tok = request_id, words, 0
                self._begun_at, self._was_approximate = time.monotonic(), self._mode != EXACT
                self.tell(PrefillProgress(request_id, 0, 38, 0))
            case Cancel() if self._request_id is not None:
                self._end(CANCELLED)
            case Cancel(request_id) if self._building is not None:
                self._building = None
                self.tell(Failed(request_id, "Stopped", "It was stopped.", "", is_fatal=False))
            case CountTokens(request_id, texts):
                self.tell(TokensCounted(request_id, tuple(len(text) // 4 for text in texts)))
            case SetDomain(domain):
                self.warm(domain)
            case SetStrategy(strategy):
                self.tell(StrategySet(strategy, (("strategy", strategy),)))
            case BuildProfile():
                self._building, self._begun_at = command, time.monotonic()
            case DeleteProfile(request_id, domain):
                self.tell(TaskEnded(request_id, True, {}, ()))
                self.has_profiles(*(profile for profile in self.profiles if profile.domain != domain))
            case SetMode(mode):
                self._mode = mode
                is_answering = self._request_id is not None
                self._was_approximate |= mode != EXACT
                self.tell(ModeChanged(mode, self._request_id, self._num_tok if is_answering else None))
            case _:
                pass

    def drain(self) -> list[Event]:
        if self.is_alive:
            self._advance(time.monotonic())
        return super().drain()

    def _advance(self, now: float) -> None:
        if not self._is_ready and self._loaded_from is not None:
            share = min(1.0, (now - self._loaded_from) / self._load_s)
            self.tell(LoadProgress("reading weights", int(139 * MIB * share), 139 * MIB))
            if share >= 1:
                self._is_ready = True
                self.tell(replace(READY, request_id=self.load_id), Profiles(self.profiles))
        if self._building is not None:
            self._build(self._building, int(2 * (now - self._begun_at)))
        while self._request_id is not None and now > self._begun_at + self._ttft_s + self._token_s * self._num_tok:
            self._recent.append(1000 * self._token_s * random.uniform(0.8, 1.7))
            self._num_tok += 1
            self.tell(TextDelta(self._request_id, self._pieces[self._num_tok - 1], self._num_tok))
            if self._num_tok == len(self._pieces):
                self._end(STOP)
        if self._is_ready and now - self._snapshot_at > 0.2:
            self._snapshot_at, self._sequence = now, self._sequence + 1
            phase = "decode" if self._request_id is not None else "idle"
            held = self._sequence if phase == "decode" or self.snapshot is None else self.snapshot.sequence
            layers, experts = self._shape
            self.snapshot = snapshot(
                held,
                phase=phase,
                mode=self._mode,
                tokens=self._num_tok,
                num_layers=layers,
                num_experts=experts,
                recent_tpot_ms=tuple(self._recent[-64:]),
            )

    def _build(self, command: BuildProfile, num_done: int) -> None:
        self.tell(TaskProgress(command.request_id, "recording", min(num_done, 40), 40))
        if num_done >= 40:
            self._building = None
            self.tell(TaskEnded(command.request_id, True, {"expected_hit_rate": 0.88}, ()))
            others = (profile for profile in self.profiles if profile.domain != command.domain)
            self.has_profiles(*others, ProfileState(command.domain, 0.88, 40))

    def _end(self, reason: str) -> None:
        assert self._request_id is not None
        label = LABEL_APPROX if self._was_approximate else LABEL_EXACT
        counted = counters(self._num_tok, is_approximate=self._was_approximate)
        text = "".join(self._pieces[: self._num_tok])
        self.tell(TurnEnded(self._request_id, reason, stats(self._num_tok, label=label, counted=counted), text))
        self._request_id = None


def main() -> None:
    """Open the app on a scripted engine; the arguments may give layers and experts."""
    shape = (int(sys.argv[1]), int(sys.argv[2])) if len(sys.argv) > 2 else (30, 16)
    folder = Path(mkdtemp())
    settings = settings_in(folder)
    bridge = EngineBridge(lambda: ScriptedEngine(shape=shape), settings.engine_config())
    bridge.start()
    ChatApp(bridge, ChatStore(folder / "chats.db"), settings).run()


if __name__ == "__main__":
    main()
