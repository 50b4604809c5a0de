"""The chat database's schema, as ordered and named steps. A step that has been released is never edited."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple


class Migration(NamedTuple):
    """One step; its name is recorded once it has run."""

    name: str
    sql: str


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
)


def migrate(connection: sqlite3.Connection, migrations: tuple[Migration, ...] = MIGRATIONS) -> list[str]:
    """Run the steps that have not run yet, each in a transaction of its own; returns their names."""
    connection.execute(
        "CREATE TABLE IF NOT EXISTS migrations"
        " (name TEXT PRIMARY KEY, applied_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)"
    )
    done = {name for (name,) in connection.execute("SELECT name FROM migrations")}
    applied = []
    for step in migrations:
        if step.name in done:
            continue
        connection.execute("BEGIN IMMEDIATE")
        try:
            if not _has_run(connection, step.name):  # another instance may have been quicker
                for statement in step.sql.split(";"):
                    if statement.strip():
                        connection.execute(statement)
                connection.execute("INSERT INTO migrations (name) VALUES (?)", (step.name,))
                applied.append(step.name)
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
    return applied


def _has_run(connection: sqlite3.Connection, name: str) -> bool:
    return connection.execute("SELECT 1 FROM migrations WHERE name = ?", (name,)).fetchone() is not None
