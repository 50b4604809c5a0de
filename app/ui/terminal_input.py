"""What comes from the terminal, before Textual reads keys out of it.

Bytes that are no UTF-8 become U+FFFD; Textual's own reader ends with them. What the terminal answers to the questions
of `terminal_background`, should it come late, is left out: Textual would take it for typed keys.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import select

from textual._parser import ParseEOF, ParseError
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver

_READ_BYTES = 4096
_POLL_S = 0.1
_REST_S = 0.02
"""How long the rest of an answer may take; the escape key takes that longer."""
_ANSWER = re.compile(r"\x1b\]1[0-2];rgba?:[0-9a-fA-F/]+(?:\x07|\x1b\\)|\x1b\[\?[\d;]+c")
_BEGUN = re.compile(r"\x1b(?:\](?:1[0-2]?)?|\]1[0-2];[rgba:0-9a-fA-F/]{0,64}\x1b?|\[|\[\?[\d;]{0,32})?$")
"""The beginning of an answer at the end of what has been read."""
_SEQUENCE = re.compile(r"\x1b(?:\[[\d;?]*[ -/]*[@-~]|O.|.)?|[\x00-\x08\x0b-\x1f\x7f]")


class InputDecoder:
    """Bytes as text, piece by piece."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._held = ""

    def decode(self, read: bytes) -> str:
        """The text to read keys out of. The beginning of an answer waits for what follows."""
        text = _ANSWER.sub("", self._held + self._decode(read))
        begun = _BEGUN.search(text)
        self._held = text[begun.start() :] if begun else ""
        return text[: begun.start()] if begun else text

    @property
    def is_holding(self) -> bool:
        """Something waits for its rest."""
        return bool(self._held)

    def release(self) -> str:
        """What waits and was not followed by the rest of an answer."""
        held, self._held = self._held, ""
        return held


def typed_text(read: bytes) -> str:
    """The text a user typed among the terminal's answers, without keys that are no text."""
    text = _ANSWER.sub("", read.decode("utf-8", "replace")).replace("\r", "\n")
    return _SEQUENCE.sub("", text).strip("\n")


class TerminalDriver(LinuxDriver):
    """Textual's driver with a reader that no byte ends."""

    def run_input_thread(self) -> None:
        """Read and pass on events until the app ends or suspends. Called in a thread of its own."""
        parser, decoder = XTermParser(self._debug), InputDecoder()
        while not self.exit_event.is_set():
            is_there = select.select([self.fileno], [], [], _REST_S if decoder.is_holding else _POLL_S)[0]
            text = decoder.decode(os.read(self.fileno, _READ_BYTES)) if is_there else decoder.release()
            if text:
                for event in parser.feed(text):
                    self.process_message(event)
            for event in parser.tick():
                self.process_message(event)
        with contextlib.suppress(ParseEOF, ParseError):
            for _ in parser.feed(""):
                pass
