"""Chats in a list, the newest first, or those in which a text was found."""

from __future__ import annotations

from textual.content import Content, Span
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from app.formatting.figures import counted
from app.formatting.sanitise import visible
from app.storage.records import ChatPlace, ChatSummary, SearchResult, Snippet
from app.storage.store import ChatStore
from app.storage.words import ChatVersions, grouped_versions

MAX_CHATS = 500
"""Chats that are listed; older ones are found by searching."""
_MAX_RESULTS = 200


class ChatList(OptionList):
    """One entry a chat; its versions are one."""

    def __init__(self, widget_id: str) -> None:
        super().__init__(id=widget_id)
        self._chats: list[ChatVersions] = []
        self._results: dict[str, SearchResult] = {}
        """The result that is shown, by chat."""

    @property
    def current(self) -> ChatVersions | None:
        """The highlighted chat."""
        at = self.highlighted
        return self._chats[at] if at is not None and at < len(self._chats) else None

    @property
    def place(self) -> ChatPlace | None:
        """Where the highlighted chat is to be opened: where something was found in it, else at its end."""
        if self.current is None:
            return None
        chat_id = self.current.newest.chat_id
        result = self._results.get(chat_id)
        if result is None or result.turn is None:
            return ChatPlace(chat_id)
        snippet = result.snippet
        return ChatPlace(chat_id, result.turn.position, tuple(snippet.text[start:end] for start, end in snippet.marks))

    def show(self, store: ChatStore, text: str, open_chat_id: str | None) -> str:
        """List all chats, or those with `text`; returns what there is to say about the list. Raises StoreError."""
        before = self.current.newest.chat_id if self.current is not None else None
        results = store.search(text, _MAX_RESULTS) if text.strip() else []
        known = store.summaries(MAX_CHATS)
        self._chats = _found(results, known) if text.strip() else grouped_versions(known)
        self._results = {result.chat.chat_id: result for result in reversed(results)}
        self.set_options(
            Option(_entry(chat_versions, open_chat_id, self._results.get(chat_versions.newest.chat_id)))
            for chat_versions in self._chats
        )
        ids = [chat_versions.newest.chat_id for chat_versions in self._chats]
        self.highlighted = (ids.index(before) if before in ids and not text else 0) if ids else None
        return _about_list(text, len(self._chats), num_results=len(results), num_chats=store.num_chats())


def _found(results: list[SearchResult], known: list[ChatSummary]) -> list[ChatVersions]:
    """The chats of the results, by their first result; the version that was found comes first in its chat."""
    of_chat = {
        chat_id: chat_versions for chat_versions in grouped_versions(known) for chat_id in chat_versions.chat_ids
    }
    found: dict[str, ChatVersions] = {}
    for result in results:
        chat_versions = of_chat.get(result.chat.chat_id, ChatVersions((result.chat,)))
        others = tuple(chat for chat in chat_versions.versions if chat.chat_id != result.chat.chat_id)
        found.setdefault(min(chat_versions.chat_ids), ChatVersions((result.chat, *others)))
    return list(found.values())


def _entry(chat_versions: ChatVersions, open_chat_id: str | None, result: SearchResult | None) -> Content:
    """Title, then when and what it is, then what was found."""
    is_open = open_chat_id in chat_versions.chat_ids
    lines = Content.assemble(
        (visible(chat_versions.newest.title), "bold"),
        (" · open now" if is_open else "", "$primary"),
        "\n",
        (visible(chat_versions.about()), "$foreground 65%"),
    )
    return lines if result is None else Content("\n").join([lines, _snippet(result.snippet)])


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


def _about_list(text: str, num_shown: int, *, num_results: int, num_chats: int) -> str:
    if text.strip():
        at_least = "at least " if num_results == _MAX_RESULTS else ""
        places, chats = counted(num_results, "place"), counted(num_shown, "chat")
        return f"Found in {at_least}{places}, in {chats}." if num_shown else "No matches."
    if not num_chats:
        return "No chats yet: a chat is saved when its first message is sent."
    return f"The newest {MAX_CHATS} of {num_chats}; searching finds all." if num_chats > MAX_CHATS else ""
