"""One block of code of an answer: copied or saved, by number, from the list, and with the mouse."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.ui.screens.chat import ChatScreen
from app.ui.screens.code_blocks import CodeBlocksScreen, SaveCode
from tests.functional.app.conftest import Stage
from tests.functional.app.ui.test_turns import talk

ANSWER = """Two programs:

```python
print("one")
```

- in a list:

  ```bash
  echo two
  echo three
  ```

The end.
"""


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a program for the clipboard was given."""
    taken: list[str] = []

    async def program(text: str) -> str:
        taken.append(text)
        return "wl-copy"

    monkeypatch.setattr("app.chat.clipboard.copy_by_program", program)
    return taken


async def _click(stage: Stage, word: str, number: int) -> None:
    """Click the word at the right above a block of code."""
    lines = stage.shown().split("\n")
    row = next(at for at, line in enumerate(lines) if line.strip().startswith(f"{number} ") and "copy save" in line)
    await stage.pilot.click(offset=(lines[row].index(word) + 1, row))


async def test_a_block_is_copied_by_its_number_and_from_the_list(stage: Stage, copied: list[str]) -> None:
    await stage.open_chat()
    await talk(stage, ("one", ANSWER))
    await stage.ask("/copy code 1")
    await stage.until(lambda: copied == ['print("one")'])
    await stage.ask("/copy code 3")
    await stage.see("from 1 to 2")
    await stage.pilot.press("ctrl+y")
    await stage.until(lambda: isinstance(stage.app.screen, CodeBlocksScreen))
    await stage.see("echo three")
    await stage.pilot.press("up")
    await stage.see('print("one")')
    await stage.pilot.press("enter")
    await stage.until(lambda: copied[1:] == ['print("one")'])
    await stage.pilot.press("ctrl+y", "escape")
    await stage.until(lambda: isinstance(stage.app.screen, ChatScreen))
    assert len(copied) == 2


async def test_a_saved_block_never_takes_the_place_of_a_file(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code-1.py").write_text("mine")
    await stage.open_chat()
    await talk(stage, ("one", ANSWER))
    await stage.pilot.press("ctrl+y")
    await stage.until(lambda: isinstance(stage.app.screen, CodeBlocksScreen))
    await stage.pilot.press("up", "ctrl+s")
    await stage.until(lambda: isinstance(stage.app.screen, SaveCode))
    await stage.see("code-1-2.py")
    await stage.pilot.press(*["backspace"] * 5, ".", "p", "y", "enter")
    await stage.see("Name another file")
    assert (tmp_path / "code-1.py").read_text() == "mine"
    await stage.pilot.press(*["backspace"] * 3, "-", "b", ".", "p", "y", "enter")
    await stage.until(lambda: isinstance(stage.app.screen, ChatScreen))
    assert (tmp_path / "code-1-b.py").read_text() == 'print("one")\n'
    await stage.ask("/save 2 two.sh")
    await stage.see("Saved block 2, bash, 2 lines")
    assert (tmp_path / "two.sh").read_text() == "echo two\necho three\n"


async def test_a_block_is_copied_and_saved_with_the_mouse(
    stage: Stage, copied: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    await stage.open_chat()
    request = await stage.ask_ready("one")
    stage.engine.begin_answer("Look:\n\n```python\nx = 1\n", 5)
    await stage.see("copy save")
    await _click(stage, "copy", 1)  # while it is written
    await stage.until(lambda: copied == ["x = 1"])
    stage.engine.end_answer(request, ANSWER, 20)
    await stage.see("The end.")
    await _click(stage, "copy", 2)
    await stage.until(lambda: copied[1:] == ["echo two\necho three"])
    await _click(stage, "save", 1)
    await stage.until(lambda: isinstance(stage.app.screen, SaveCode))
    await stage.see("code-1.py")


async def test_the_line_above_code_is_neither_found_nor_copied(stage: Stage) -> None:
    await stage.open_chat()
    await talk(stage, ("one", "Here python is said.\n\n```python\npython = 2\n```\n"))
    await stage.ask("/find python")
    await stage.see("of 2")
