"""The line above the prompt: what the engine is doing for the user right now."""

from __future__ import annotations

from textual.content import Content
from textual.widget import Widget

from app.domains import profile_words
from app.domains.profile_book import ProfileTask
from app.engine_link.bridge import EngineBridge, EngineState
from app.formatting import figures, progress_line
from app.formatting.progress_line import Pace
from app.formatting.sanitise import visible
from app.ui.key_map import key_for
from engine.events import EngineReady, Failed, PrefillProgress

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class ActivityLine(Widget):
    """Starting, loading, reading the prompt, answering, waiting, down; empty when there is nothing to say."""

    def __init__(
        self, widget_id: str | None = None, *, stop_action: str = "chat.stop", cancel_action: str = "chat.stop"
    ) -> None:
        """The keys of these actions are named: `stop_action` stops answering or loading, `cancel_action` building."""
        super().__init__(id=widget_id)
        self._stop_action, self._cancel_action = stop_action, cancel_action
        self._content = Content("")
        self._beat = 0

    def render(self) -> Content:
        return self._content

    def show_engine(self, bridge: EngineBridge, num_waiting: int = 0) -> None:
        """The engine's own state, when no answer is being written."""
        waiting = f"{num_waiting} message{'s' if num_waiting > 1 else ''} waiting  ·  " if num_waiting else ""
        if bridge.is_down and bridge.failure is not None:
            advice = "starts the engine again" if bridge.state is EngineState.DEAD else "loads the model again"
            self._set(_down(bridge.failure, f"{key_for(self, 'app.restart')} {advice}"))
        elif bridge.state is EngineState.READY:
            self._set(Content(""))
        elif bridge.is_stopping_load:
            self._working("stopping …")
        elif bridge.progress is not None:
            stop = self._stops if bridge.is_loading else ""
            self._working(waiting + progress_line.loading(bridge.progress, bridge.pace) + stop)
        else:
            self._working(waiting + "starting the engine …")

    def show_ready(self, ready: EngineReady) -> None:
        """The engine waits for a question."""
        shape = f"{ready.num_layers} x {ready.num_experts} experts, {ready.top_k} a token"
        self._set(
            Content.assemble(
                ("● ", "$success"),
                (f"{visible(ready.model_name)} is ready  ·  {shape}  ·  {ready.load_s:.1f} s", "$quiet"),
            )
        )

    def show_profile_task(self, task: ProfileTask, num_waiting: int = 0) -> None:
        """A profile is being built or deleted."""
        if num_waiting:
            ending = f" · {num_waiting} waiting"
        else:
            cancels = f" · {key_for(self, self._cancel_action)} cancels"
            ending = cancels if task.is_build and not task.is_cancelling else ""
        self._working(profile_words.working(task, ending, self.content_size.width - 2))

    def show_prefill(self, progress: PrefillProgress | None, pace: Pace, num_waiting: int) -> None:
        """The prompt is being read."""
        text = progress_line.prefill(progress, pace) if progress is not None else "asking …"
        self._working(text + _behind(num_waiting) + self._stops)

    def show_answering(self, num_tok: int, tpot_ms: float | None, num_waiting: int, *, is_stopping: bool) -> None:
        """The answer is being written."""
        if is_stopping:
            self._working("stopping …")
        else:
            self._working(f"{num_tok} tok  ·  {figures.tok_per_s(tpot_ms)}{_behind(num_waiting)}{self._stops}")

    @property
    def _stops(self) -> str:
        return f"  ·  {key_for(self, self._stop_action)} stops"

    def _working(self, text: str) -> None:
        self._beat += 1
        self._set(Content.assemble((_SPINNER[self._beat % len(_SPINNER)] + " ", "$primary"), (visible(text), "$quiet")))

    def _set(self, content: Content) -> None:
        if content != self._content:
            self._content = content
            self.refresh()


def _behind(num_waiting: int) -> str:
    return f"  ·  {num_waiting} more waiting" if num_waiting else ""


def _down(failure: Failed, advice: str) -> Content:
    """Why nothing is answered, and what to press."""
    return Content.assemble(("✕ ", "$error"), (visible(failure.title), "bold $error"), (f"  ·  {advice}", "$quiet"))
