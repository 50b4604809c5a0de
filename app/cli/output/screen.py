"""What a command without a screen prints: the answer on standard output, progress on a terminal's standard error."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import TextIO

from app.cli.output.terminal_text import clear_line, say, say_json, tell
from app.domains import profile_words
from app.formatting import progress_line
from app.storage import answer_record
from engine.events import (
    DomainSet,
    EngineReady,
    Event,
    Failed,
    LoadProgress,
    ModeChanged,
    Notice,
    PrefillProgress,
    StrategySet,
    TaskProgress,
    TextDelta,
    TurnEnded,
)

_LEFT_OUT = "messages left out"


def event_json(event: Event, answered_by: Mapping[str, str]) -> dict[str, object] | None:
    """One event as the object that --json prints; None for events it leaves out. `answered_by` is the domain and the
    model of an answer that ended."""
    match event:
        case LoadProgress():
            return {"event": "loading", **asdict(event)}
        case EngineReady():
            return _ready_json(event)
        case PrefillProgress():
            return {
                "event": "prefill",
                "done_tok": event.done_tok,
                "total_tok": event.total_tok,
                "reused_tok": event.reused_tok,
                "left_out_messages": event.left_out_messages,
                "note": event.note,
            }
        case TextDelta():
            kind = "thinking" if event.is_thinking else "text"
            return {"event": kind, "text": event.text, "num_tok": event.num_tok}
        case ModeChanged():
            return {"event": "mode", "mode": event.mode, "at_tok": event.at_tok}
        case TurnEnded():
            stats = {**answer_record.as_json(event.stats, event.reason), **answered_by}
            return {
                "event": "end",
                "reason": event.reason,
                "label": event.stats.label,
                "text": event.text,
                "thinking": event.thinking,
                "stats": stats,
            }
        case DomainSet():
            return {"event": "domain", **asdict(event)}
        case StrategySet():
            return {"event": "strategy", "strategy": event.strategy}
        case Notice():
            return {"event": "notice", **asdict(event)}
        case Failed():
            told = {"title": event.title, "message": event.message, "hint": event.hint, "kind": event.kind}
            return {"event": "error", **told}
        case _:
            return None


def _ready_json(ready: EngineReady) -> dict[str, object]:
    return {
        "event": "ready",
        "model": ready.model_name,
        "moe_layers": ready.num_layers,
        "experts": ready.num_experts,
        "top_k": ready.top_k,
        "context_tok": ready.context_tok,
        "thinking_choices": list(ready.thinking_choices),
        "effective": dict(ready.effective),
        "notices": list(ready.notices),
        "load_s": ready.load_s,
    }


class HeadlessScreen:
    """Standard output and standard error of every command without a screen."""

    def __init__(self, *, is_json: bool = False, shows_thinking: bool = False, is_plain: bool = False) -> None:
        """`is_plain`: nothing on the terminal is drawn over; a new stage of waiting is a line of its own."""
        self._is_json = is_json
        self._shows_thinking = shows_thinking
        self._is_plain = is_plain
        self._has_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._open_line: TextIO | None = None
        """Where a line of the answer or the thinking has begun and not ended."""
        self._has_progress = False
        self._told_stage = ""
        self._told_loading: LoadProgress | None = None
        self.answered_by: dict[str, str] = {}
        """The domain and the model of the present answer, which the statistics of --json have."""

    def event(self, event: Event) -> None:
        """Print what an event has to say."""
        if self._is_json:
            self._event_json(event)
        match event:
            case LoadProgress(stage=stage):
                self._progress(stage, progress_line.loading(event))
            case PrefillProgress():
                self._prefill(event)
            case TaskProgress(stage=stage):
                self._progress(stage, progress_line.task(event))
            case EngineReady():
                for notice in event.notices:
                    self.note(notice)
            case Notice(message, hint):
                self.note(f"{message} {hint}".strip())
            case DomainSet() if text := profile_words.warmed(event):
                self.note(text)
            case TextDelta(is_thinking=True):
                self._thinking(event)
            case TextDelta():
                self._text(event.text, sys.stdout)
            case TurnEnded():
                self.end_text()

    def _event_json(self, event: Event) -> None:
        """An event as a line; loading that stands where it stood is none."""
        shown = event_json(event, self.answered_by)
        if shown is None or (isinstance(event, LoadProgress) and event == self._told_loading):
            return
        if isinstance(event, LoadProgress):
            self._told_loading = event
        self.json(shown)

    def json(self, shown: dict[str, object]) -> None:
        """One object, in a line."""
        if self._is_json:
            say_json(shown, indent=None)

    def note(self, text: str) -> None:
        """A remark, on standard error."""
        self.clear_progress()
        tell(text)

    def stats(self, lines: list[str]) -> None:
        """What the answer cost: after the answer, or on standard error where standard output is JSON."""
        for line in lines:
            say(f"# {line}", stream=sys.stderr if self._is_json else sys.stdout)

    def end_text(self) -> None:
        """Finish the last line of the answer or the thinking."""
        if self._open_line is not None:
            say(stream=self._open_line)
            self._open_line = None

    def clear_progress(self) -> None:
        """Take the progress line off the terminal. Raises nothing: it is part of every end, also where the terminal is
        gone."""
        if self._has_progress:
            self._has_progress = False
            with contextlib.suppress(OSError, ValueError):
                clear_line()

    def _prefill(self, event: PrefillProgress) -> None:
        if event.left_out_messages and self._told_stage != _LEFT_OUT:
            self.note(f"The oldest {event.left_out_messages} messages were left out: the context is full.")
            self._told_stage = _LEFT_OUT
        self._progress("reading the prompt", progress_line.prefill(event))

    def _thinking(self, event: TextDelta) -> None:
        if self._shows_thinking:
            self._text(event.text, sys.stderr)
        else:
            self._progress("thinking", f"thinking … {event.num_tok} tok")

    def _text(self, text: str, stream: TextIO) -> None:
        if self._is_json or not text:
            return
        self.clear_progress()
        if self._open_line is not stream:
            self.end_text()
        say(text, end="", stream=stream)
        self._open_line = None if text.endswith("\n") else stream

    def _progress(self, stage: str, line: str) -> None:
        if not self._has_terminal or self._open_line is not None:
            return
        if not self._is_plain:
            clear_line()
            tell(line, end="")
            self._has_progress = True
        elif stage != self._told_stage:
            tell(f"{stage} …")
            self._told_stage = stage
