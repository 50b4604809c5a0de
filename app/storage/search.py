"""Searching chats: what a user types, as words to find; by the full-text index, or by reading every text. What is
searched are titles, turns, and the files that were sent with them.

Whatever is typed is a valid search. Words are looked for together; "quoted words" as they stand; the last word may be
unfinished. What no index can find (signs such as `=>`, scripts without spaces between words) is looked for in every
text, and so is everything where SQLite has no index. Not FTS5's trigram tokenizer, which finds neither two characters,
as most Chinese words are, nor whole words alone, and whose index is 5 times as large and 13 times as slow to write; to
read 3 MB of texts takes 15 ms.
"""

from __future__ import annotations

import re
import sqlite3
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

from app.storage.records import Snippet
from app.storage.rows import searched_text_of, text_of

_OPEN, _CLOSE = "\x02", "\x03"
"""Marks around what matched, inside SQLite; the texts' own such characters are left out of a snippet."""
_NUM_WORDS = 16
_NUM_CHARACTERS_BEFORE, _NUM_CHARACTERS = 30, 110

_TERM = re.compile(r'"([^"]*)"?|(\S+)')
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
"""Scripts that put no space between words: the index would know whole sentences only."""

_BY_INDEX = f"""
SELECT * FROM (
    SELECT chats.chat_id, NULL AS turn_id, snippet(title_index, 0, '{_OPEN}', '{_CLOSE}', '…', {_NUM_WORDS}) AS found
    FROM title_index JOIN chats ON chats.chat_number = title_index.rowid
    WHERE title_index MATCH ?1 ORDER BY title_index.rowid DESC LIMIT ?2
)
UNION ALL
SELECT * FROM (
    SELECT turns.chat_id, turns.turn_id, snippet(turn_index, -1, '{_OPEN}', '{_CLOSE}', '…', {_NUM_WORDS})
    FROM turn_index JOIN turns ON turns.turn_number = turn_index.rowid
    WHERE turn_index MATCH ?1 ORDER BY turn_index.rowid DESC LIMIT ?2
)
LIMIT ?2
"""

_EVERY_TEXT = """
SELECT chat_id, NULL, title, NULL FROM chats WHERE title != ''
UNION ALL
SELECT * FROM (SELECT chat_id, turn_id, text, attachments FROM turns ORDER BY turn_number DESC)
"""


class Match(NamedTuple):
    """Where the text was found; `turn_id` is None for a title."""

    chat_id: str
    turn_id: str | None
    snippet: Snippet


def find(connection: sqlite3.Connection, text: str, limit: int, *, can_index: bool) -> list[Match]:
    """The places where every term of `text` is found, at most `limit`; none for an empty text."""
    terms = _terms(text)
    if not terms:
        return []
    if can_index and all(_is_indexed(term) for term in terms):
        is_unfinished = not text.endswith((" ", '"')) and len(terms[-1]) > 1
        rows = connection.execute(_BY_INDEX, (_query(terms, is_unfinished=is_unfinished), limit))
        return [Match(text_of(chat_id), turn_id, _marked(text_of(found))) for chat_id, turn_id, found in rows]
    folded = [_folded(term) for term in terms]
    return list(_scan(connection, folded, limit))


def _terms(text: str) -> list[str]:
    return [term for quoted, word in _TERM.findall(text.replace("\0", " ")) if (term := (quoted or word).strip())]


def _is_indexed(term: str) -> bool:
    """Whether the index can find it: words of a script with spaces, and no sign that would be ignored."""
    has_word = any(character.isalnum() for character in term)
    is_plain = all(character.isalnum() or character in " '-_." for character in term)
    return has_word and is_plain and not _UNSPACED.search(term)


def _query(terms: list[str], *, is_unfinished: bool) -> str:
    """The terms as phrases of the full-text syntax, which has no other special characters inside quotes."""
    phrases = ['"' + term.replace('"', '""') + '"' for term in terms]
    return " ".join(phrases) + ("*" if is_unfinished else "")


def _marked(found: str) -> Snippet:
    """SQLite's snippet as one line of text and the spans that matched."""
    text, marks, start = "", [], None
    for piece in re.split(f"([{_OPEN}{_CLOSE}])", re.sub(r"\s+", " ", found)):
        if piece == _OPEN:
            start = len(text)
        elif piece == _CLOSE and start is not None:
            marks.append((start, len(text)))
            start = None
        elif piece not in (_OPEN, _CLOSE):
            text += piece
    return Snippet(text, tuple(marks))


def _scan(connection: sqlite3.Connection, terms: list[str], limit: int) -> Iterator[Match]:
    num_found = 0
    for chat_id, turn_id, stored, attached in connection.execute(_EVERY_TEXT):
        text = searched_text_of(stored, attached)
        folded = _folded(text)
        if all(term in folded for term in terms):
            yield Match(text_of(chat_id), turn_id, _cut_out(text, folded, terms))
            num_found += 1
            if num_found == limit:
                return


class _Folding(dict[int, str]):
    """Characters without case and accents, each as one character, so that places stay comparable."""

    def __missing__(self, code: int) -> str:
        self[code] = unicodedata.normalize("NFD", chr(code))[0].lower()[:1]
        return self[code]


_FOLDING = _Folding()


def _folded(text: str) -> str:
    return text.lower() if text.isascii() else text.translate(_FOLDING)


def _cut_out(text: str, folded: str, terms: list[str]) -> Snippet:
    """A line of the text around the first place, and the spans in it that matched."""
    first = min(folded.index(term) for term in terms)
    start = max(0, first - _NUM_CHARACTERS_BEFORE)
    end = min(len(text), start + _NUM_CHARACTERS)
    lead, tail = "…" if start else "", "…" if end < len(text) else ""
    line = "".join(" " if character.isspace() else character for character in text[start:end])
    spans = sorted(
        (match.start(), match.end()) for term in terms for match in re.finditer(re.escape(term), folded[start:end])
    )
    marks: list[tuple[int, int]] = []
    for span_start, span_end in spans:
        if not marks or span_start + len(lead) >= marks[-1][1]:
            marks.append((span_start + len(lead), span_end + len(lead)))
    return Snippet(f"{lead}{line}{tail}", tuple(marks))
