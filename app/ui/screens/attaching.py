"""The files that the message in the prompt names: read while it is typed, counted by the engine, and sent with it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from app.chat import attachments
from app.chat.attachments import AttachmentError, Question
from app.formatting import mention
from app.storage.records import Attachment
from app.ui.widgets.attachment_line import AttachmentLine, ShownFile
from engine.api import CountTokens
from engine.events import EngineReady, Event, TokensCounted

if TYPE_CHECKING:
    from app.ui.screens.chat import ChatScreen

_REST_S = 0.15
"""How long the typing has to rest before files are read."""
_READING = "attachments"
_CHARACTERS_A_TOKEN = 4
"""Of the message itself, which is not counted."""


class Attaching:
    """Shows what would be sent with the message."""

    def __init__(self, chat: ChatScreen) -> None:
        self._chat = chat
        self._read: dict[str, Attachment | AttachmentError] = {}
        """By the name in the message, as it was when it was looked at last."""
        self._costs: dict[Attachment, int] = {}
        self._asked: dict[int, list[Attachment]] = {}

    def look(self, text: str) -> None:
        """The message has changed: read the files that it names, once the typing rests."""
        if not mention.paths(text):
            self._chat.workers.cancel_group(self._chat, _READING)
            self._read, self._costs = {}, {}
            self._show()
            return
        self._chat.run_worker(self._look(text), group=_READING, exclusive=True)

    async def read(self, text: str, named_in: str) -> Question:
        """The question with its files, as it is sent. Raises AttachmentError."""
        return await asyncio.to_thread(attachments.question_of, text, named_in)

    def note(self, happened: list[Event]) -> None:
        """Take in counts that were asked for. Another model counts otherwise, and knows of no earlier request."""
        if any(isinstance(event, EngineReady) for event in happened):
            self._costs, self._asked = {}, {}
        counted = [event for event in happened if isinstance(event, TokensCounted)]
        for event in counted:
            self._costs.update(zip(self._asked.pop(event.request_id, []), event.counts, strict=False))
        if counted:
            self._show()
        elif self._read:
            self._count()

    async def _look(self, text: str) -> None:
        await asyncio.sleep(_REST_S)
        self._read = await asyncio.to_thread(_read_all, text)
        self._count()
        self._show()

    def _count(self) -> None:
        """Ask the engine what the files cost, each once."""
        bridge = self._chat.bridge
        asked = {attachment for asked in self._asked.values() for attachment in asked}
        unknown = [one for one in self._files if one not in self._costs and one not in asked]
        if unknown and bridge.is_ready:
            request_id = bridge.next_request_id()
            self._asked[request_id] = unknown
            bridge.send(CountTokens(request_id, tuple(map(attachments.as_sent, unknown))))

    @property
    def _files(self) -> list[Attachment]:
        return [one for one in self._read.values() if isinstance(one, Attachment)]

    def _show(self) -> None:
        shown = [
            ShownFile(name, self._costs.get(one))
            if isinstance(one, Attachment)
            else ShownFile(name, problem=one.message.removeprefix(name).strip())
            for name, one in self._read.items()
        ]
        ready = self._chat.bridge.ready
        costs = [self._costs.get(one) for one in self._files]
        known = [cost for cost in costs if cost is not None]
        total_tok = ready.context_tok if ready is not None else 0
        left_tok = None
        if total_tok and len(known) == len(costs):
            used_tok = self._chat.flow.conversation.context_size.used_tok
            message_tok = -(-len(self._chat.prompt.whole_text) // _CHARACTERS_A_TOKEN)
            left_tok = total_tok - used_tok - message_tok - sum(known)
        self._chat.query_one(AttachmentLine).show(shown, left_tok, total_tok)


def _read_all(text: str) -> dict[str, Attachment | AttachmentError]:
    """The files that a text names and that are there, or why one cannot be sent."""
    found: dict[str, Attachment | AttachmentError] = {}
    for name in mention.paths(text)[: attachments.MAX_FILES]:
        if (there := attachments.existing(name)) is not None:
            try:
                found[there] = attachments.read(there)
            except AttachmentError as error:
                found[there] = error
    return found
