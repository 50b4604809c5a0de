"""Text goes to a text field: what is typed or pasted is never taken for a command, whatever has the focus."""

from __future__ import annotations

from functools import partial
from typing import Protocol, runtime_checkable

from textual import events
from textual.app import App
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input, TextArea

from app.ui.screens.confirm import Confirm, TakesAllKeys

_BURST_S = 0.01
"""Keys that arrive within this were not pressed one by one."""

_HELD_S = 0.02
"""How long an enter inside a burst waits to see whether text follows."""

_MODIFIERS = frozenset(("ctrl", "alt", "super", "meta", "hyper"))


@runtime_checkable
class HasTextField(Protocol):
    """A screen that says itself where text is typed into."""

    def text_field(self) -> Widget:
        """The field, made visible."""


def text_of(event: events.Event) -> str:
    """The text a paste or a key stands for; empty: it is no text."""
    if isinstance(event, events.Paste):
        return event.text
    if isinstance(event, events.Key) and event.is_printable and not _MODIFIERS & set(event.key.split("+")[:-1]):
        return event.character or ""
    return ""


def asked_at(app: App[object]) -> float:
    """When the key or the mouse button was pressed whose action runs."""
    return app._asked_at if isinstance(app, TypingApp) else 0.0


def is_typed_since(app: App[object], pressed_at: float | None = None) -> bool:
    """Text came after that (None: after what acts now was pressed): an action that was slower than the user's hands
    leaves the focus where the text went."""
    return isinstance(app, TypingApp) and app._text_at > (app._asked_at if pressed_at is None else pressed_at)


class TypingApp(App[None]):
    """Moves the focus into a text field before text arrives; an enter within a burst of text is a line break."""

    _text_at = 0.0
    """When the last text arrived."""
    _asked_at = 0.0
    """When what acts now was pressed. A key acts only after it has been through every widget around the focused one."""
    _held: events.Key | None = None
    """An enter that directly follows text: a line break if more text follows directly."""

    async def on_event(self, event: events.Event) -> None:
        """Keys and pastes pass here before any binding or widget sees them."""
        if isinstance(event, events.Key | events.MouseDown | events.MouseUp) and not text_of(event):
            self._asked_at = event.time
        if not isinstance(event, events.Key | events.Paste) or event.is_forwarded:
            await super().on_event(event)
            return
        if isinstance(event, events.Key) and _MODIFIERS & set(event.key.split("+")[:-1]):
            event.character = None  # terminals send alt and a letter as one: no text field is to type the letter
        text, held = text_of(event), self._held
        if held is not None:
            is_burst = bool(text) and event.time - held.time < _BURST_S
            await (self._break_line() if is_burst else self._release(held))
        if isinstance(event, events.Key) and event.key == "enter" and event.time - self._text_at < _BURST_S:
            self._held = event
            self.set_timer(_HELD_S, partial(self._release, event))
        else:
            await self._deliver(event, text)

    async def _release(self, held: events.Key) -> None:
        """It was an enter like any other."""
        if self._held is held:
            self._held = None
            await self._deliver(held, "")

    async def _break_line(self) -> None:
        """It was part of a text. It takes the way of the text around it, past all bindings."""
        self._held = None
        focused = self.focused
        if isinstance(focused, Input):
            focused.post_message(events.Key("space", " "))
        elif focused is not None:
            focused.post_message(events.Key("ctrl+j" if focused.id == "prompt" else "enter", None))

    async def _deliver(self, event: events.Key | events.Paste, text: str) -> None:
        if text:
            self._text_at = event.time
            while not self._can_take_text(self.screen):
                screen = self.screen
                if isinstance(screen, Confirm):
                    rest = screen.hear(text) if isinstance(event, events.Key) else screen.refuse(text)
                    if not rest:
                        return
                    if rest != text:
                        event, text = events.Paste(rest), rest
                elif not await self.leave_for_text(screen):
                    break
        await super().on_event(event)

    def _can_take_text(self, screen: Screen[object]) -> bool:
        """Whether text arrives where it belongs now. Moves the focus into the screen's text field, if it has one."""
        if isinstance(screen, TakesAllKeys):
            return not isinstance(screen, Confirm)
        focused = screen.focused
        if isinstance(focused, Input | TextArea) and all(node.display for node in focused.ancestors_with_self):
            return True
        if isinstance(screen, HasTextField):
            field: Widget | None = screen.text_field()
        else:
            field = next((widget for widget in screen.focus_chain if isinstance(widget, Input | TextArea)), None)
        if field is not None:
            screen.set_focus(field)
        return field is not None

    async def leave_for_text(self, screen: Screen[object]) -> bool:
        """Close a screen that has no text field, for the one below; False when there is none below."""
        if len(self.screen_stack) <= 2:
            return False
        screen.dismiss(None)
        return True

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Nothing of the app runs while a screen takes every key."""
        return not (self.screen_stack and isinstance(self.screen, TakesAllKeys))
