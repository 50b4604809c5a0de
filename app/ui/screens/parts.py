"""A screen made of parts: objects with one responsibility, whose actions its keys, the palette and commands reach."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from textual.screen import Screen

_Screen = TypeVar("_Screen", bound=Screen[None])


def with_actions_of(**parts: type) -> Callable[[type[_Screen]], type[_Screen]]:
    """Give a screen the actions of its parts, which it has under these names: Textual looks for them on the screen."""

    def lent(part: str, action: Callable[..., object]) -> Callable[..., object]:
        @wraps(action)
        def act(screen: _Screen, *arguments: object) -> object:
            return action(getattr(screen, part), *arguments)

        return act

    def give(screen: type[_Screen]) -> type[_Screen]:
        for name, part in parts.items():
            for action in vars(part):
                if action.startswith("action_"):
                    setattr(screen, action, lent(name, getattr(part, action)))
        return screen

    return give
