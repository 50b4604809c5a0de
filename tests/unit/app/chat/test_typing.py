"""What was typed and pasted before it is sent: history, marks, the editor, the clipboard, finding."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.chat import clipboard, external_editor
from app.chat.pasted import PastedTexts
from app.chat.prompt_history import MAX_BYTES, MAX_CHARACTERS, MAX_ENTRIES, PromptHistory
from app.ui.widgets.find_bar import pattern_of
from app.ui.widgets.text_lines import spans_of


def test_history_is_kept_bounded_and_without_repeats(tmp_path: Path) -> None:
    path = tmp_path / "data" / "prompts.jsonl"
    history = PromptHistory(path)
    for number in range(MAX_ENTRIES + 20):
        history.add(f"text\n{number}")
    history.add("last")
    history.add("last")
    history.add("x" * (MAX_CHARACTERS + 1))
    assert len(history.texts) == MAX_ENTRIES
    again = PromptHistory(path)
    assert again.texts[-2:] == [f"text\n{MAX_ENTRIES + 19}", "last"]
    assert path.stat().st_mode & 0o077 == 0


def test_a_long_history_is_cut_well_below_the_most_and_stays_private(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    history, other = PromptHistory(path), PromptHistory(path)
    for number in range(MAX_BYTES // MAX_CHARACTERS):
        history.add(f"{number:0{MAX_CHARACTERS - 4}}")
    other.add("by another instance")
    assert path.stat().st_size < MAX_BYTES
    history.add("x" * MAX_CHARACTERS)
    assert MAX_BYTES // 4 < path.stat().st_size <= MAX_BYTES // 2
    assert path.stat().st_mode & 0o077 == 0
    other.add("after the cut")
    assert PromptHistory(path).texts[-3:] == ["by another instance", "x" * MAX_CHARACTERS, "after the cut"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_history_that_cannot_be_used_is_done_without(tmp_path: Path) -> None:
    broken = tmp_path / "prompts.jsonl"
    broken.write_bytes(b'"good"\n{]\n12\n\xff\xfe\n')
    assert PromptHistory(broken).texts == ["good"]
    history = PromptHistory(tmp_path / "prompts.jsonl" / "below-a-file")
    history.add("text")
    assert history.texts == ["text"]


def test_marks_stand_for_long_texts() -> None:
    pasted = PastedTexts()
    long, other, wide = "a\n" * 30, "b\n" * 30, "w" * 5000
    assert pasted.shorten("short") == "short"
    marks = [pasted.shorten(text) for text in (long, other, long, wide)]
    assert marks == ["[pasted 31 lines]", "[pasted #2: 31 lines]", "[pasted 31 lines]", "[pasted 5,000 characters]"]
    assert pasted.whole(f"see {marks[0]} and {marks[1]}; {marks[3]}") == f"see {long} and {other}; {wide}"
    assert pasted.whole("[pasted 99 lines]") == "[pasted 99 lines]"
    assert pasted.mark_before(f"see {marks[1]}") == len(marks[1])
    assert pasted.mark_before("see") == 0


@pytest.mark.parametrize(
    ("environment", "command"),
    [({"VISUAL": "code --wait", "EDITOR": "ed"}, ["code", "--wait"]), ({"EDITOR": "nano"}, ["nano"]), ({}, ["vi"])],
)
def test_the_editor_is_the_users(environment: dict[str, str], command: list[str]) -> None:
    assert external_editor.editor_command(environment) == command


def test_an_editor_that_fails_leaves_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", "false")
    with pytest.raises(external_editor.EditorError, match="ended with code 1"):
        external_editor.edit("text")


@pytest.mark.parametrize(
    ("environment", "platform", "names"),
    [
        ({"WAYLAND_DISPLAY": "wayland-0", "DISPLAY": ":0"}, "linux", ["wl-copy", "xclip", "xsel"]),
        ({"DISPLAY": ":0"}, "linux", ["xclip", "xsel"]),
        ({}, "linux", []),
        ({}, "darwin", ["pbcopy"]),
        ({"WSL_DISTRO_NAME": "x"}, "linux", ["clip.exe"]),
    ],
)
def test_clipboard_programs_are_those_of_the_session(
    environment: dict[str, str], platform: str, names: list[str]
) -> None:
    assert [command[0] for command in clipboard.programs(environment, platform)] == names


async def test_text_goes_to_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = tmp_path / "taken"
    program = tmp_path / "xclip"
    program.write_text(f"#!/bin/sh\ncat > {taken}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert await clipboard.copy_by_program("täxt\n") == "xclip"
    assert taken.read_text(encoding="utf-8") == "täxt\n"


def test_text_is_found_across_line_ends_and_without_regard_to_case() -> None:
    pattern = pattern_of("two  WORDS")
    assert pattern is not None
    lines = ["here are two", "  words, and", "two words"]
    assert [(y, span) for y, span in spans_of(lines, pattern)] == [(0, (9, 12, 0)), (1, (2, 7, 0)), (2, (0, 9, 1))]
    assert pattern_of("  ") is None
    assert pattern_of("a.c[") is not None
    assert pattern_of("a.c[").search("xa.c[") is not None  # type: ignore[union-attr]
