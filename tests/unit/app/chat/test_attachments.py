"""Files that are sent with a question: what names one, what is refused, and what the model is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.chat import attachments, context
from app.chat.attachments import AttachmentError, dropped, question_of
from app.chat.exchange import Exchange
from app.commands.path_words import path_completions
from app.formatting import mention
from app.storage.records import USER, Attachment, TurnRecord


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "main.py").write_text("print('hi')\n")
    (tmp_path / "two words.md").write_text("# Two\n```\ncode\n```\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "lib.c").write_text("int x;")
    (tmp_path / ".env").write_text("SECRET=1")
    return tmp_path


def _names(text: str) -> list[str]:
    return [attachment.name for attachment in question_of(text).attachments]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("what is @main.py?", ["main.py"]),
        ("(see @main.py, @src/lib.c.)", ["main.py", "src/lib.c"]),
        ("@main.py and again @main.py", ["main.py"]),
        ('read @"two words.md" please', ["two words.md"]),
        ("@property and @app.route('/x') and me@main.py and @nothing.py", []),
        ("@@main.py", []),
        ("@/no\0thing", []),
        ("@" + "x" * 5000, []),
    ],
)
def test_a_word_that_names_a_file_attaches_it(text: str, names: list[str]) -> None:
    assert _names(text) == names


def test_two_signs_are_one_of_text() -> None:
    text = 'about @@main.py, @@"two words.md" and @@count += 1\n@@ -1,2 +3 @@'
    assert question_of(text).text == 'about @main.py, @"two words.md" and @@count += 1\n@@ -1,2 +3 @@'


def test_what_cannot_be_sent_is_refused_in_a_sentence(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    (folder / "latin").write_bytes("Füße, Öl und Äpfel: überall Ärger".encode("latin-1"))
    (folder / "utf16.txt").write_bytes("hello".encode("utf-16"))
    (folder / "empty").touch()
    (folder / "loop").symlink_to("loop")
    (folder / "closed").write_text("x")
    with (folder / "large").open("wb") as file:
        file.truncate(3 * 1024**3)
    told = {
        "src": "is a folder",
        "pipe": "is not a file",
        "/dev/zero": "is not a file",
        "image.png": "not UTF-8",
        "latin": "not UTF-8",
        "utf16.txt": "not UTF-8",
        "empty": "is empty",
        "loop": "cannot be read",
        "large": "3.0 GiB; at most 1.0 MiB",
    }
    for name, why in told.items():
        with pytest.raises(AttachmentError) as caught:
            question_of(f"what is @{name}")
        assert why in caught.value.message, name
        assert f"@@{name}" in caught.value.hint
        assert question_of(f"what is @@{name}").attachments == ()


def test_many_files_are_refused_together(folder: Path) -> None:
    for number in range(21):
        (folder / f"f{number}").write_text("x")
    with pytest.raises(AttachmentError, match="21 files"):
        question_of(" ".join(f"@f{number}" for number in range(21)))
    (folder / "half").write_text("x" * 600_000)
    (folder / "other").write_text("y" * 600_000)
    with pytest.raises(AttachmentError, match="2 files"):
        question_of("@half @other")


def test_bytes_become_text_in_the_way_of_the_program(folder: Path) -> None:
    (folder / "mixed.txt").write_bytes("\ufeffgood \u2713 text ".encode() + b"\xff" + b" and more of it" * 20)
    text = question_of("@mixed.txt").attachments[0].text
    assert text.startswith("good ✓ text \ufffd and")


def test_the_model_is_told_each_file_under_its_name_and_nothing_in_one_ends_it() -> None:
    turn = TurnRecord("chat", 0, USER, *question_of('compare @main.py @"two words.md"')[:1])
    turn.attachments = question_of('compare @main.py @"two words.md"').attachments
    (message,) = context.messages("", [], Exchange(turn))
    assert message.content == (
        "main.py:\n```py\nprint('hi')\n```\n\n"
        "two words.md:\n````md\n# Two\n```\ncode\n```\n````\n\n"
        'compare @main.py @"two words.md"'
    )
    assert context.context_characters("", [Exchange(turn)]) == 0  # not answered yet
    turn.in_context = True
    assert context.context_characters("", [Exchange(turn)]) == len(message.content)


def test_another_wording_sends_a_file_as_it_was(folder: Path) -> None:
    before = (Attachment("main.py", "the old text"),)
    assert question_of("and @main.py.", sent_before=before).attachments == before
    (folder / "main.py").unlink()
    assert question_of("and @main.py", sent_before=before).attachments == before
    assert question_of("without", sent_before=before).attachments == ()


def test_only_whole_paths_of_files_are_taken_for_dropped_ones(folder: Path) -> None:
    main, two = folder / "main.py", folder / "two words.md"
    assert dropped(str(main)) == f"@{main}"
    assert dropped(f"'{two}' ") == dropped(str(two)) == dropped(str(two).replace(" ", "\\ ")) == f'@"{two}"'
    assert dropped(two.as_uri()) == f'@"{two}"'
    assert dropped(f"'{main}' '{two}'") == f'@{main} @"{two}"'
    for text in ("main.py", str(folder), f"{main} is broken", f"{main}\n{two}", "/", "'", "/etc/nothing"):
        assert dropped(text) == ""


def test_paths_are_completed() -> None:
    def words(before: str) -> list[str]:
        return [completion.text for completion in path_completions(before)]

    assert words("see @") == ["@src/", "@main.py", '@"two words.md"']
    assert words("see @MA") == ["@main.py"]
    assert words("@src/") == ["@src/lib.c"]
    assert words("@.e") == ["@.env"]
    assert words('@"two w') == ['@"two words.md"']
    assert words("mail@") == words("@absent/") == words("no sign") == words("@main.py ") == []
    (completion,) = path_completions("see @ma")
    assert completion.replaces == len("@ma")


def test_a_mention_is_read_as_it_was_written() -> None:
    for path in ("a", "a b", "/x/y z.md", "ü.txt"):
        assert mention.paths(mention.written(path)) == [path]


def test_about_a_file() -> None:
    assert attachments.about(Attachment("x", "one\ntwo\n")) == "2 lines, 8 B"
