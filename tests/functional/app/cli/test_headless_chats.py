"""`moe-chat chats`: on a real database, without an engine."""

from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cli import main as cli
from app.cli import usage
from app.storage.paths import AppPaths
from app.storage.records import ASSISTANT, USER, ChatRecord, TurnRecord
from app.storage.store import ChatStore


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ChatStore]:
    monkeypatch.setenv("MOE_CHAT_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    store = ChatStore(AppPaths.from_environment().chats_db)
    _keep(store, "a1f3", "about apples", "They are red \x1b[31m.", day=1)
    _keep(store, "a2f3", "about pears", "They are green.", day=2)
    yield store
    store.close()


def _keep(store: ChatStore, chat_id: str, *texts: str, day: int, parent: str | None = None) -> None:
    at = f"2026-01-{day:02}T10:00:00.000+00:00"
    chat = ChatRecord("maths", "", "demo", chat_id=chat_id, created_at=at, parent_chat_id=parent)
    roles = (USER, ASSISTANT)
    store.save_whole(
        chat, [TurnRecord(chat_id, at_, roles[at_ % 2], text, created_at=at) for at_, text in enumerate(texts)]
    )


def test_list(store: ChatStore, capsys: pytest.CaptureFixture[str]) -> None:
    _keep(store, "b1", "about pears", "They are yellow.", day=3, parent="a2f3")
    assert cli.main(["chats", "list"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("b1  about pears · ")
    assert first.endswith("2 turns · Maths · demo · 2 versions")
    assert second.startswith("a1f3  about apples")
    assert cli.main(["chats", "list", "--all", "--limit", "2"]) == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 2
    assert "The newest 2 of 3" in printed.err
    assert cli.main(["chats", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["versions"] == ["b1", "a2f3"]
    assert cli.main(["chats", "list", "--ids"]) == 0
    assert capsys.readouterr().out.split() == ["b1", "a2f3", "a1f3"]


def test_show_takes_an_abbreviated_id(store: ChatStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["chats", "show", "a1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# about apples\n")
    assert "They are red ␛[31m." in out
    assert cli.main(["chats", "show", "last", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["chats"][0]["chat_id"] == "a2f3"


@pytest.mark.parametrize(
    ("name", "told"), [("a", "begins the ids of several chats"), ("zz", "No chat's id begins"), ("", "No chat's id")]
)
def test_an_id_must_name_one_chat(store: ChatStore, name: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["chats", "show", name]) == usage.EXIT_FAILED
    assert told in capsys.readouterr().err


def test_search(store: ChatStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["chats", "search", "they", "red"]) == 0
    head, snippet = capsys.readouterr().out.splitlines()
    assert head.startswith("a1f3  about apples · ")
    assert head.endswith("turn 2")
    assert snippet.strip() == "They are red ␛[31m."
    assert cli.main(["chats", "search", "green", "--json"]) == 0
    (hit,) = json.loads(capsys.readouterr().out)
    ((start, end),) = hit["marks"]
    assert (hit["position"], hit["snippet"][start:end]) == (1, "green")
    assert cli.main(["chats", "search", "zebra"]) == 0
    assert capsys.readouterr().err == "No matches.\n"


def test_export_and_import(
    store: ChatStore, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main(["chats", "export", "a1", "a2"]) == 0
    assert capsys.readouterr().out.count("\n## You\n") == 2
    assert cli.main(["chats", "export", "--all", "--json", "-o", "all.json"]) == 0
    assert cli.main(["chats", "export", "--all", "-o", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.glob("*.md")} == {"about-apples-a1f3.md", "about-pears-a2f3.md"}
    assert cli.main(["chats", "export"]) == usage.EXIT_FAILED
    assert cli.main(["chats", "export", "a1", "-o", "all.json"]) == usage.EXIT_FAILED
    store.delete_chat("a1f3")
    capsys.readouterr()
    assert cli.main(["chats", "import", "all.json"]) == 0
    assert capsys.readouterr().out == "1 chat imported, 1 chat already there\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO((tmp_path / "all.json").read_bytes())))
    assert cli.main(["chats", "import", "-"]) == 0
    assert capsys.readouterr().out == "2 chats already there\n"


def test_one_chat_is_exported_with_its_versions(
    store: ChatStore, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    _keep(store, "b1", "about pears", "They are yellow.", day=3, parent="a2f3")
    assert cli.main(["chats", "export", "b1", "--json"]) == 0
    exported = json.loads(capsys.readouterr().out)["chats"]
    assert [(chat["chat_id"], chat["parent_chat_id"]) for chat in exported] == [("a2f3", None), ("b1", "a2f3")]
    assert cli.main(["chats", "export", "b1"]) == 0
    printed = capsys.readouterr()
    assert printed.out.count("\n## You\n") == 1
    assert "1 other version" in printed.err
    assert cli.main(["chats", "export", "--all", "--json", "-o", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.glob("*.json")} == {"about-apples-a1f3.json", "about-pears-a2f3.json"}
    store.delete_chat("a2f3")
    assert cli.main(["chats", "import", "about-pears-a2f3.json"]) == 0
    kept = store.chat("b1")
    assert kept is not None
    assert kept.parent_chat_id == "a2f3"


def test_a_row_that_cannot_be_read_is_said_and_the_others_are_there(
    store: ChatStore, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    store.close()
    connection = sqlite3.connect(store.path)
    connection.execute("UPDATE turns SET stats = '{' WHERE chat_id = 'a1f3' AND position = 1")
    connection.execute("UPDATE turns SET position = x'00' WHERE chat_id = 'a2f3' AND position = 1")
    connection.commit()
    connection.close()
    for argv in (["list"], ["show", "a1"], ["export", "--all"], ["export", "--all", "--json"], ["search", "about"]):
        assert cli.main(["chats", *argv]) == 0
        printed = capsys.readouterr()
        assert "apples" in printed.out
        assert argv[0] in ("list", "search") or "cannot be read" in printed.err


def test_rename(store: ChatStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["chats", "rename", "a1", "A", "new", "name"]) == 0
    assert capsys.readouterr().out == "a1f3  A new name\n"
    assert cli.main(["chats", "rename", "a1", ""]) == 0
    assert capsys.readouterr().out == "a1f3  about apples\n"


class Typed(io.StringIO):
    """Somebody at a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "num_left"), [("y\n", 1), ("\n", 2), ("", 2)])
def test_delete_asks_first(store: ChatStore, typed: str, num_left: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Typed(typed))
    assert cli.main(["chats", "delete", "a1"]) == 0
    assert store.num_chats() == num_left


def test_delete_without_anybody_to_ask(
    store: ChatStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert cli.main(["chats", "delete", "a1"]) == usage.EXIT_USAGE
    assert "--yes" in capsys.readouterr().err
    assert cli.main(["chats", "delete", "a1", "a2", "--yes"]) == 0
    assert store.num_chats() == 0


def test_no_chats(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("MOE_CHAT_HOME", str(tmp_path))
    assert cli.main(["chats", "list"]) == 0
    assert capsys.readouterr().err == "No chats yet.\n"
    assert cli.main(["chats", "show", "last"]) == usage.EXIT_FAILED
