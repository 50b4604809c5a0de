"""What a command without a screen prints: the answer on standard output, progress on a terminal's standard error."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from app import answer_record, profile_words, progress_line
from app.sanitise import visible
from engine.events import (
    DomainSet,
    EngineReady,
    Event,
    Failed,
    LoadProgress,
    ModeChanged,
    PrefillProgress,
    TaskProgress,
    TextDelta,
    TurnEnded,
)

_CLEAR_LINE = "\r\x1b[2K"


def event_json(event: Event) -> dict[str, object] | None:
    """One event as the object that --json prints; None for events it leaves out."""
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
                "note": event.note,
            }
        case TextDelta():
            return {"event": "text", "text": event.text, "num_tok": event.num_tok}
        case ModeChanged():
            return {"event": "mode", "mode": event.mode, "at_tok": event.at_tok}
        case TurnEnded():
            stats = answer_record.as_json(event.stats, event.reason)
            return {
                "event": "end",
                "reason": event.reason,
                "label": event.stats.label,
                "text": event.text,
                "stats": stats,
            }
        case DomainSet():
            return {"event": "domain", **asdict(event)}
        case Failed():
            return {"event": "error", "title": event.title, "message": event.message, "hint": event.hint}
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
        "effective": dict(ready.effective),
        "notices": list(ready.notices),
        "load_s": ready.load_s,
    }


class HeadlessScreen:
    """Standard output and standard error of every command without a screen."""

    def __init__(self, *, is_json: bool) -> None:
        self._is_json = is_json
        self._has_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._has_open_line = False
        self._has_progress = False

    def event(self, event: Event) -> None:
        """Print what an event has to say."""
        if self._is_json:
            shown = event_json(event)
            if shown is not None:
                print(json.dumps(shown, ensure_ascii=False), flush=True)
        match event:
            case LoadProgress():
                self._progress(progress_line.loading(event))
            case PrefillProgress():
                self._progress(progress_line.prefill(event))
            case TaskProgress():
                self._progress(progress_line.task(event))
            case EngineReady():
                for notice in event.notices:
                    self.note(notice)
            case DomainSet() if text := profile_words.warmed(event):
                self.note(text)
            case TextDelta():
                self._text(event.text)
            case TurnEnded():
                self.end_text()

    def note(self, text: str) -> None:
        """A remark, on standard error."""
        self.clear_progress()
        print(text, file=sys.stderr)

    def stats(self, lines: list[str]) -> None:
        """What the answer cost: after the answer, or on standard error where standard output is JSON."""
        for line in lines:
            print(f"# {line}", file=sys.stderr if self._is_json else sys.stdout)

    def end_text(self) -> None:
        """Finish the answer's last line."""
        if self._has_open_line:
            print(flush=True)
            self._has_open_line = False

    def clear_progress(self) -> None:
        """Take the progress line off the terminal."""
        if self._has_progress:
            print(_CLEAR_LINE, end="", file=sys.stderr, flush=True)
            self._has_progress = False

    def _text(self, text: str) -> None:
        if self._is_json or not text:
            return
        self.clear_progress()
        print(visible(text), end="", flush=True)
        self._has_open_line = not text.endswith("\n")

    def _progress(self, line: str) -> None:
        if self._has_terminal and not self._has_open_line:
            print(f"{_CLEAR_LINE}{line}", end="", file=sys.stderr, flush=True)
            self._has_progress = True
