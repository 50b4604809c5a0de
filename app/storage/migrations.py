"""The chat database's schema, as ordered and named steps. A step that has been released is never edited."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


class Migration(NamedTuple):
    """One step; its name is recorded once it has run. One that needs FTS5 waits for an SQLite that has it."""

    name: str
    sql: str
    needs_fts5: bool = False


SEARCH_TRIGGERS = (
    "turn_index_insert",
    "turn_index_update",
    "turn_index_delete",
    "title_index_insert",
    "title_index_update",
    "title_index_delete",
)
"""What keeps the search index in step with the texts. They only run in an SQLite that has FTS5."""


def _attached(column: str) -> str:
    """SQL for the names and texts of a turn's files, which the column holds as JSON; NULL where it holds none.

    One by one, as many as a question can have: an index reads its content without `json_each`.
    """
    names_and_texts = " || ".join(
        f"coalesce(json_extract({column}, '$[{at}].name') || char(10) ||"
        f" json_extract({column}, '$[{at}].text') || char(10), '')"
        for at in range(20)
    )
    return f"CASE WHEN json_valid({column}) THEN {names_and_texts} END"


MIGRATIONS = (
    Migration(
        "0001_chats_and_turns",
        """
        CREATE TABLE chats (
            chat_id TEXT PRIMARY KEY,
            domain TEXT NOT NULL,
            system_prompt TEXT NOT NULL,
            model TEXT NOT NULL,
            created_at TEXT NOT NULL
        );
        CREATE TABLE turns (
            turn_id TEXT PRIMARY KEY,
            chat_id TEXT NOT NULL REFERENCES chats (chat_id) ON DELETE CASCADE,
            position INTEGER NOT NULL,
            role TEXT NOT NULL,
            text TEXT NOT NULL,
            state TEXT NOT NULL,
            mode_label TEXT NOT NULL,
            created_at TEXT NOT NULL
        );
        """,
    ),
    Migration(
        "0002_turn_stats_and_markers",
        """
        ALTER TABLE turns ADD COLUMN stats TEXT;
        ALTER TABLE turns ADD COLUMN markers TEXT NOT NULL DEFAULT '[]';
        CREATE INDEX turns_by_chat ON turns (chat_id, position);
        """,
    ),
    # Row numbers of their own, which outlive VACUUM: the search index refers to them. Turns go before chats, whose
    # removal would take them along.
    Migration(
        "0003_titles_branches_and_thinking",
        """
        CREATE TABLE new_chats (
            chat_number INTEGER PRIMARY KEY,
            chat_id TEXT NOT NULL UNIQUE,
            domain TEXT NOT NULL,
            system_prompt TEXT NOT NULL,
            model TEXT NOT NULL,
            created_at TEXT NOT NULL,
            title TEXT NOT NULL DEFAULT '',
            parent_chat_id TEXT REFERENCES new_chats (chat_id) ON DELETE SET NULL,
            branched_at INTEGER
        );
        INSERT INTO new_chats (chat_id, domain, system_prompt, model, created_at)
            SELECT chat_id, domain, system_prompt, model, created_at FROM chats ORDER BY rowid;
        CREATE TABLE new_turns (
            turn_number INTEGER PRIMARY KEY,
            turn_id TEXT NOT NULL UNIQUE,
            chat_id TEXT NOT NULL REFERENCES new_chats (chat_id) ON DELETE CASCADE,
            position INTEGER NOT NULL,
            role TEXT NOT NULL,
            text TEXT NOT NULL,
            state TEXT NOT NULL,
            mode_label TEXT NOT NULL,
            created_at TEXT NOT NULL,
            stats TEXT,
            markers TEXT NOT NULL DEFAULT '[]',
            thinking TEXT NOT NULL DEFAULT ''
        );
        INSERT INTO new_turns (turn_id, chat_id, position, role, text, state, mode_label, created_at, stats, markers)
            SELECT turn_id, chat_id, position, role, text, state, mode_label, created_at, stats, markers
            FROM turns ORDER BY rowid;
        DROP TABLE turns;
        DROP TABLE chats;
        ALTER TABLE new_chats RENAME TO chats;
        ALTER TABLE new_turns RENAME TO turns;
        CREATE INDEX turns_by_chat ON turns (chat_id, position);
        CREATE INDEX turns_by_time ON turns (chat_id, created_at);
        CREATE INDEX chats_by_parent ON chats (parent_chat_id);
        """,
    ),
    Migration(
        "0004_full_text_search",
        """
        DROP TABLE IF EXISTS turn_index;
        DROP TABLE IF EXISTS title_index;
        CREATE VIRTUAL TABLE turn_index USING fts5 (
            text, content = 'turns', content_rowid = 'turn_number', tokenize = 'unicode61 remove_diacritics 2'
        );
        CREATE VIRTUAL TABLE title_index USING fts5 (
            title, content = 'chats', content_rowid = 'chat_number', tokenize = 'unicode61 remove_diacritics 2'
        );
        CREATE TRIGGER turn_index_insert AFTER INSERT ON turns BEGIN
            INSERT INTO turn_index (rowid, text) VALUES (new.turn_number, new.text);
        END;
        CREATE TRIGGER turn_index_update AFTER UPDATE OF text ON turns WHEN old.text IS NOT new.text BEGIN
            INSERT INTO turn_index (turn_index, rowid, text) VALUES ('delete', old.turn_number, old.text);
            INSERT INTO turn_index (rowid, text) VALUES (new.turn_number, new.text);
        END;
        CREATE TRIGGER turn_index_delete AFTER DELETE ON turns BEGIN
            INSERT INTO turn_index (turn_index, rowid, text) VALUES ('delete', old.turn_number, old.text);
        END;
        CREATE TRIGGER title_index_insert AFTER INSERT ON chats BEGIN
            INSERT INTO title_index (rowid, title) VALUES (new.chat_number, new.title);
        END;
        CREATE TRIGGER title_index_update AFTER UPDATE OF title ON chats WHEN old.title IS NOT new.title BEGIN
            INSERT INTO title_index (title_index, rowid, title) VALUES ('delete', old.chat_number, old.title);
            INSERT INTO title_index (rowid, title) VALUES (new.chat_number, new.title);
        END;
        CREATE TRIGGER title_index_delete AFTER DELETE ON chats BEGIN
            INSERT INTO title_index (title_index, rowid, title) VALUES ('delete', old.chat_number, old.title);
        END;
        INSERT INTO turn_index (turn_index) VALUES ('rebuild');
        INSERT INTO title_index (title_index) VALUES ('rebuild');
        """,
        needs_fts5=True,
    ),
    # Rows of the bin are copies of whatever was in the tables, damaged or not: no column has a type or a constraint.
    Migration(
        "0005_bin_and_context",
        """
        ALTER TABLE turns ADD COLUMN in_context INTEGER;
        CREATE TABLE deletions (
            deletion_id TEXT PRIMARY KEY,
            deleted_at TEXT NOT NULL,
            chat_id TEXT NOT NULL,
            is_chat INTEGER NOT NULL
        );
        CREATE TABLE deleted_chats (
            deletion_id TEXT NOT NULL REFERENCES deletions (deletion_id) ON DELETE CASCADE,
            domain, system_prompt, model, chat_id, created_at, title, parent_chat_id, branched_at
        );
        CREATE TABLE deleted_turns (
            deletion_id TEXT NOT NULL REFERENCES deletions (deletion_id) ON DELETE CASCADE,
            chat_id, position, role, text, state, mode_label, stats, markers, turn_id, created_at, thinking, in_context
        );
        CREATE TABLE deleted_links (
            deletion_id TEXT NOT NULL REFERENCES deletions (deletion_id) ON DELETE CASCADE,
            chat_id, parent_chat_id, branched_at
        );
        CREATE INDEX deleted_chats_by_deletion ON deleted_chats (deletion_id);
        CREATE INDEX deleted_turns_by_deletion ON deleted_turns (deletion_id);
        CREATE INDEX deleted_links_by_deletion ON deleted_links (deletion_id);
        """,
    ),
    # Both hold JSON; NULL: there is none.
    Migration(
        "0006_presets_and_attachments",
        """
        ALTER TABLE chats ADD COLUMN preset TEXT;
        ALTER TABLE deleted_chats ADD COLUMN preset;
        ALTER TABLE turns ADD COLUMN attachments TEXT;
        ALTER TABLE deleted_turns ADD COLUMN attachments;
        """,
    ),
    Migration(
        "0007_search_in_attachments",
        f"""
        DROP TRIGGER IF EXISTS turn_index_insert;
        DROP TRIGGER IF EXISTS turn_index_update;
        DROP TRIGGER IF EXISTS turn_index_delete;
        DROP TABLE IF EXISTS turn_index;
        DROP VIEW IF EXISTS searched_turns;
        CREATE VIEW searched_turns AS SELECT turn_number, text, {_attached("attachments")} AS attached FROM turns;
        CREATE VIRTUAL TABLE turn_index USING fts5 (
            text, attached, content = 'searched_turns', content_rowid = 'turn_number',
            tokenize = 'unicode61 remove_diacritics 2'
        );
        CREATE TRIGGER turn_index_insert AFTER INSERT ON turns BEGIN
            INSERT INTO turn_index (rowid, text, attached)
            VALUES (new.turn_number, new.text, {_attached("new.attachments")});
        END;
        CREATE TRIGGER turn_index_update AFTER UPDATE OF text, attachments ON turns
        WHEN old.text IS NOT new.text OR old.attachments IS NOT new.attachments BEGIN
            INSERT INTO turn_index (turn_index, rowid, text, attached)
            VALUES ('delete', old.turn_number, old.text, {_attached("old.attachments")});
            INSERT INTO turn_index (rowid, text, attached)
            VALUES (new.turn_number, new.text, {_attached("new.attachments")});
        END;
        CREATE TRIGGER turn_index_delete AFTER DELETE ON turns BEGIN
            INSERT INTO turn_index (turn_index, rowid, text, attached)
            VALUES ('delete', old.turn_number, old.text, {_attached("old.attachments")});
        END;
        INSERT INTO turn_index (turn_index) VALUES ('rebuild');
        """,
        needs_fts5=True,
    ),
)


def has_fts5(connection: sqlite3.Connection) -> bool:
    """Whether this SQLite was built with full-text search."""
    return connection.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'").fetchone() is not None


def migrate(
    connection: sqlite3.Connection, migrations: tuple[Migration, ...] = MIGRATIONS, *, can_index: bool = True
) -> list[str]:
    """Run the steps that have not run yet, each in a transaction of its own; returns their names.

    Without `can_index` the steps that need FTS5 wait, and are undone as far as they would stop writing.
    """
    connection.execute(
        "CREATE TABLE IF NOT EXISTS migrations"
        " (name TEXT PRIMARY KEY, applied_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)"
    )
    done = {name for (name,) in connection.execute("SELECT name FROM migrations")}
    if not can_index:
        _unplug_index(connection, done)
    return [
        step.name
        for step in migrations
        if step.name not in done and (can_index or not step.needs_fts5) and _run(connection, step)
    ]


def _run(connection: sqlite3.Connection, step: Migration) -> bool:
    """Whether it was this connection that ran the step: another instance may have been quicker."""
    with transaction(connection):
        if connection.execute("SELECT 1 FROM migrations WHERE name = ?", (step.name,)).fetchone() is not None:
            return False
        for statement in _statements(step.sql):
            connection.execute(statement)
        connection.execute("INSERT INTO migrations (name) VALUES (?)", (step.name,))
    return True


def _unplug_index(connection: sqlite3.Connection, done: set[str]) -> None:
    """Written by an SQLite with FTS5, opened by one without: the index is made again once there is FTS5 again."""
    made = [step.name for step in MIGRATIONS if step.needs_fts5 and step.name in done]
    if not made:
        return
    with transaction(connection):
        for trigger in SEARCH_TRIGGERS:
            connection.execute(f"DROP TRIGGER IF EXISTS {trigger}")
        connection.executemany("DELETE FROM migrations WHERE name = ?", [(name,) for name in made])


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing. Tables of one name are renamed and dropped inside: checks wait for its end."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise


def _statements(sql: str) -> Iterator[str]:
    """The statements of a script; those inside a trigger are part of it."""
    statement = ""
    for piece in sql.split(";"):
        statement += piece + ";"
        if sqlite3.complete_statement(statement):
            if statement.strip(" \n;"):
                yield statement
            statement = ""
