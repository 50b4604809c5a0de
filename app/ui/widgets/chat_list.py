"""Chats in a list, the newest first, or those in which a text was found."""

from __future__ import annotations

from textual.content import Content, Span
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from app.formatting.sanitise import visible
from app.storage.records import ChatPlace, ChatSummary, Hit, Snippet
from app.storage.store import ChatStore
from app.storage.words import Family, families

MAX_CHATS = 500
"""Chats that are listed; older ones are found by searching."""
_MAX_HITS = 200


class ChatList(OptionList):
    """One entry a chat; its versions are one."""

    def __init__(self, widget_id: str) -> None:
        super().__init__(id=widget_id)
        self._families: list[Family] = []
        self._hits: dict[str, Hit] = {}
        """The hit that is shown, by chat."""

    @property
    def current(self) -> Family | None:
        """The highlighted chat."""
        at = self.highlighted
        return self._families[at] if at is not None and at < len(self._families) else None

    @property
    def place(self) -> ChatPlace | None:
        """Where the highlighted chat is to be opened: where something was found in it, else at its end."""
        if self.current is None:
            return None
        chat_id = self.current.newest.chat_id
        hit = self._hits.get(chat_id)
        if hit is None or hit.turn is None:
            return ChatPlace(chat_id)
        snippet = hit.snippet
        return ChatPlace(chat_id, hit.turn.position, tuple(snippet.text[start:end] for start, end in snippet.marks))

    def show(self, store: ChatStore, text: str, open_chat_id: str | None) -> str:
        """List all chats, or those with `text`; returns what there is to say about the list. Raises StoreError."""
        before = self.current.newest.chat_id if self.current is not None else None
        hits = store.search(text, _MAX_HITS) if text.strip() else []
        known = store.summaries(MAX_CHATS)
        self._families = _found(hits, known) if text.strip() else families(known)
        self._hits = {hit.chat.chat_id: hit for hit in reversed(hits)}
        self.set_options(
            Option(_entry(family, open_chat_id, self._hits.get(family.newest.chat_id))) for family in self._families
        )
        ids = [family.newest.chat_id for family in self._families]
        self.highlighted = (ids.index(before) if before in ids and not text else 0) if ids else None
        return _about_list(text, len(self._families), num_hits=len(hits), num_chats=store.num_chats())


def _found(hits: list[Hit], known: list[ChatSummary]) -> list[Family]:
    """The families of the hits, by their first hit; the version that was found stands for its family."""
    of_chat = {chat_id: family for family in families(known) for chat_id in family.chat_ids}
    found: dict[str, Family] = {}
    for hit in hits:
        family = of_chat.get(hit.chat.chat_id, Family((hit.chat,)))
        others = tuple(chat for chat in family.versions if chat.chat_id != hit.chat.chat_id)
        found.setdefault(min(family.chat_ids), Family((hit.chat, *others)))
    return list(found.values())


def _entry(family: Family, open_chat_id: str | None, hit: Hit | None) -> Content:
    """Title, then when and what it is, then what was found."""
    is_open = open_chat_id in family.chat_ids
    lines = Content.assemble(
        (visible(family.newest.title), "bold"),
        (" · open now" if is_open else "", "$primary"),
        "\n",
        (visible(family.about()), "$foreground 65%"),
    )
    return lines if hit is None else Content("\n").join([lines, _snippet(hit.snippet)])


def _snippet(snippet: Snippet) -> Content:
    """The text with what matched marked; signs that take more room than the character they stand for are moved for."""
    text, spans, last = "", [], 0
    for start, end in snippet.marks:
        text += visible(snippet.text[last:start])
        begin = len(text)
        text += visible(snippet.text[start:end])
        spans.append(Span(begin, len(text), "bold $primary"))
        last = end
    return Content(text + visible(snippet.text[last:]), [Span(0, 10**6, "$foreground 80%"), *spans])


def _about_list(text: str, num_shown: int, *, num_hits: int, num_chats: int) -> str:
    if text.strip():
        at_least = "at least " if num_hits == _MAX_HITS else ""
        places = f"{num_hits} place" if num_hits == 1 else f"{num_hits} places"
        chats = f"{num_shown} chat" if num_shown == 1 else f"{num_shown} chats"
        return f"Found in {at_least}{places}, in {chats}." if num_shown else "Found in no chat."
    if not num_chats:
        return "No chat is kept yet: one is as soon as its first message is sent."
    return f"The newest {MAX_CHATS} of {num_chats}; searching finds all." if num_chats > MAX_CHATS else ""
