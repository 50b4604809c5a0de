"""What the screens look like. After a change that is meant, look at the difference that git shows, and keep it:

make screens    writes `screens/` anew
"""

from __future__ import annotations

import asyncio
import difflib
import os
from pathlib import Path

import pytest

from app.storage.records import ASSISTANT, USER, ChatRecord, TurnRecord
from app.storage.store import ChatStore
from engine.config import APPROX, EXACT
from engine.events import LABEL_APPROX, LABEL_EXACT, STOP, ModeChanged, ProfileState, TurnEnded
from tests.functional.app.conftest import Stage
from tests.functional.app.fake_engine import snapshot, stats
from tests.patience import PATIENCE_S
from tests.snapshots.screen_text import screen_text

_FOLDER = Path(__file__).with_name("screens")
_IS_UPDATE = bool(os.environ.get("UPDATE_SCREENS"))
_STILL_S, _LOOK_S = 1.0, 0.05

WIDE, NARROW = (120, 40), (80, 24)
BOTH_SIZES = pytest.mark.parametrize("size", [WIDE, NARROW], ids=["120x40", "80x24"])
ONE_SIZE = pytest.mark.parametrize("size", [WIDE], ids=["120x40"])

_ANSWER = """The capital of France is **Paris**.

- on the *Seine*
- 2 million people

```python
print("Paris")
```"""


async def _check(stage: Stage, request: pytest.FixtureRequest) -> None:
    """The screen becomes what was kept for this test, or is kept."""
    path = _FOLDER / f"{request.node.name.removeprefix('test_').replace('[', '-').rstrip(']')}.txt"
    if not path.exists() and not _IS_UPDATE:
        pytest.fail(f"{path.name} is not kept: `make screens` writes it.", pytrace=False)
    kept = "" if _IS_UPDATE else path.read_text(encoding="utf-8")
    shown, still_s, waited_s = "", 0.0, 0.0
    while shown != kept or _IS_UPDATE:
        before, shown = shown, screen_text(stage.app.screen)
        still_s = still_s + _LOOK_S if shown == before else 0.0
        waited_s += _LOOK_S
        if waited_s > PATIENCE_S or (_IS_UPDATE and still_s > _STILL_S):
            break
        await asyncio.sleep(_LOOK_S)
    if _IS_UPDATE:
        path.write_text(shown, encoding="utf-8")
    elif shown != kept:
        difference = difflib.unified_diff(kept.splitlines(), shown.splitlines(), "kept", "shown", lineterm="", n=1)
        pytest.fail("\n".join((path.name, *difference)), pytrace=False)


async def _answer(stage: Stage, mode: str = EXACT) -> None:
    """A chat with one answer, and panels that have seen some of it."""
    await stage.open_chat()
    if mode != EXACT:
        stage.engine.tell(ModeChanged(mode, None, None))
    await stage.ask_ready("What is the capital of France?")
    for sequence in range(2, 14):
        stage.engine.snapshot = snapshot(
            sequence, phase="decode", mode=mode, tokens=4 * sequence, recent_tpot_ms=tuple(range(40, 50 + sequence))
        )
        stage.chat.engine_snapshot(stage.engine.snapshot)
    label = LABEL_EXACT if mode == EXACT else LABEL_APPROX
    counted = stats(52, label=label, counted=stage.engine.snapshot.turn_counters)
    stage.engine.tell(TurnEnded(stage.engine.begin_answer(_ANSWER, 52), STOP, counted, _ANSWER))
    await stage.see("52 tok")


async def test_a_screen_whose_picture_is_not_kept_fails(stage: Stage, request: pytest.FixtureRequest) -> None:
    if not _IS_UPDATE:
        with pytest.raises(pytest.fail.Exception, match="not kept"):
            await _check(stage, request)


class TestFirstRun:
    @pytest.fixture
    def saved_settings(self) -> str | None:
        return None

    @BOTH_SIZES
    async def test_welcome(self, stage: Stage, request: pytest.FixtureRequest) -> None:
        await stage.see("Which model?")
        await _check(stage, request)


@BOTH_SIZES
async def test_domains(stage: Stage, request: pytest.FixtureRequest) -> None:
    stage.engine.has_profiles(ProfileState("maths", 0.912, 44), ProfileState("code", None, 44, "another model's"))
    await stage.see("Build profile")
    await _check(stage, request)


@BOTH_SIZES
async def test_chat(stage: Stage, request: pytest.FixtureRequest) -> None:
    await _answer(stage)
    await _check(stage, request)


@BOTH_SIZES
async def test_settings(stage: Stage, request: pytest.FixtureRequest) -> None:
    await stage.see("Build profile")
    await stage.pilot.press("f2", "down", "down", "down")
    await stage.see("The share of the routed experts")
    await _check(stage, request)


@BOTH_SIZES
async def test_help(stage: Stage, request: pytest.FixtureRequest) -> None:
    await stage.see("Build profile")
    await stage.pilot.press("f1")
    await stage.see("Writing")
    await _check(stage, request)


@BOTH_SIZES
async def test_chats(stage: Stage, request: pytest.FixtureRequest) -> None:
    store = ChatStore(stage.db_path)
    for day, question in enumerate(("What is 17 × 23?", "你好 🙂 [red]", "A verse on rain"), 1):
        chat = ChatRecord("maths", "", "demo", created_at=f"2020-01-0{day}T12:00:00.000+00:00")
        store.save_chat(chat)
        for position, (role, text) in enumerate(((USER, question), (ASSISTANT, "391"))):
            store.save_turn(TurnRecord(chat.chat_id, position, role, text, created_at=chat.created_at))
    store.close()
    await stage.see("Build profile")
    await stage.pilot.press("ctrl+r")
    await stage.see("A verse on rain")
    await _check(stage, request)


class TestWithoutColours:
    @pytest.fixture(autouse=True)
    def _no_color(self, _the_same_everywhere: None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NO_COLOR", "1")

    @ONE_SIZE
    async def test_chat_without_colours(self, stage: Stage, request: pytest.FixtureRequest) -> None:
        await _answer(stage)
        await _check(stage, request)


class TestLight:
    @pytest.fixture
    def saved_settings(self) -> str | None:
        return '[screen]\ntheme = "light"\n'

    @ONE_SIZE
    async def test_chat_light(self, stage: Stage, request: pytest.FixtureRequest) -> None:
        await _answer(stage, APPROX)
        await _check(stage, request)
