"""Keys of actions: the defaults of `app.commands.table`, overlaid by the user's key map."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from itertools import combinations

from textual.binding import Binding
from textual.dom import DOMNode
from textual.keys import Keys

from app.commands.table import COMMANDS, Command, command_with_id, commands_of

_MODIFIERS = ("ctrl", "shift", "alt", "super", "meta", "hyper")
_NAMED_CHARACTERS = frozenset(("minus", "plus", "comma", "slash", "full_stop", "space"))
_NAMED_KEYS = frozenset(key.value.split("+")[-1] for key in Keys) | _NAMED_CHARACTERS


def bindings_of(scope: str) -> list[Binding]:
    """The bindings that a screen or widget of that scope declares. The user's key map finds them by their id."""
    return [
        Binding(
            action.keys,
            action.call,
            action.footer or action.title,
            show=bool(action.footer),
            priority=action.is_priority,
            id=action.id,
        )
        for action in commands_of(scope)
        if action.call and action.keys
    ]


class KeyMap:
    """The keys in force. What of the user's key map cannot be followed is left out, and said in `problems`."""

    def __init__(self, wanted: Mapping[str, str] | None = None) -> None:
        """`wanted` gives keys by action id, as in `{"chat.mode": "f6,ctrl+e"}`."""
        self.problems: list[str] = []
        self.changed: dict[str, str] = {}
        for action_id, keys in (wanted or {}).items():
            problem = _problem_of(action_id, keys)
            if problem:
                self.problems.append(problem)
            else:
                self.changed[action_id] = ",".join(_split(keys))
        self._drop_clashes()

    def keys_of(self, action: Command) -> tuple[str, ...]:
        """The keys of an action; none: it is reached by the palette."""
        return tuple(_split(self.changed.get(action.id, action.keys)))

    def keys_text(self, action: Command) -> str:
        """Its keys for a person: `shift+enter, ctrl+j`."""
        return ", ".join(key_text(key) for key in self.keys_of(action))

    def key(self, action_id: str) -> str:
        """The key of an action, for a sentence; one that has none is reached by the palette."""
        action = command_with_id(action_id)
        keys = self.keys_of(action) if action is not None else ()
        return key_text(keys[0]) if keys else "the palette"

    def _drop_clashes(self) -> None:
        """Give up the user's keys, the last ones first, until no key means two things in one place."""
        while clash := next(self._clashes(), None):
            key, actions = clash
            loser = max(
                actions, key=lambda action: list(self.changed).index(action.id) if action.id in self.changed else -1
            )
            other = next(action for action in actions if action is not loser)
            self.problems.append(
                f"The key {key_text(key)} cannot be both {loser.id} and {other.id}: {loser.id} keeps"
                f" {key_text(loser.keys) or 'no key'}."
            )
            del self.changed[loser.id]

    def _clashes(self) -> Iterator[tuple[str, tuple[Command, Command]]]:
        for first, second in combinations(COMMANDS, 2):
            if (first.id in self.changed or second.id in self.changed) and _meet(first.scope, second.scope):
                for key in set(self.keys_of(first)) & set(self.keys_of(second)):
                    yield key, (first, second)


def key_for(node: DOMNode, action_id: str) -> str:
    """The key of an action in the app that a widget belongs to, for a sentence."""
    key_map: KeyMap = getattr(node.app, "key_map", None) or KeyMap()
    return key_map.key(action_id)


def key_text(key: str) -> str:
    """A key for a person: `esc`, `page up`, `ctrl+n`."""
    names = {"escape": "esc", "pageup": "page up", "pagedown": "page down", "ctrl+underscore": "ctrl+_"}
    return names.get(key, key)


def is_key(key: str) -> bool:
    """Whether a terminal can send a key of that name, such as `ctrl+n`, `f6`, `alt+up` or `y`."""
    *modifiers, name = key.split("+")
    return all(modifier in _MODIFIERS for modifier in modifiers) and (name in _NAMED_KEYS or len(name) == 1)


def is_text(key: str) -> bool:
    """Whether a key types a character, which no binding can take."""
    return len(key) == 1 or key in _NAMED_CHARACTERS


def _problem_of(action_id: str, keys: object) -> str:
    """Why one line of the user's key map cannot be followed; empty: it can, as far as other lines do not matter."""
    action = command_with_id(action_id)
    if action is None:
        near = difflib.get_close_matches(action_id, [action.id for action in COMMANDS if action.call], 1, 0.4)
        return f"The key map names {action_id!r}, which is no action{f'; did you mean {near[0]}?' if near else '.'}"
    if not action.call:
        return f"The key of {action_id} cannot be changed."
    if not isinstance(keys, str) or not _split(keys):
        return f'The key map gives {action_id} no key; write it like "ctrl+n" or "f6,alt+x".'
    for key in _split(keys):
        if not is_key(key):
            return f"The key map gives {action_id} the key {key!r}, which does not exist."
        if is_text(key):
            return f"The key map gives {action_id} the key {key!r}, which is needed to type; add ctrl+ or alt+."
    return ""


def _split(keys: str) -> list[str]:
    return [key.strip().lower() if len(key.strip()) > 1 else key.strip() for key in keys.split(",") if key.strip()]


def _meet(first: str, second: str) -> bool:
    """Whether keys of two scopes are live at the same time."""
    return first == second or "app" in (first, second) or {first, second} in ({"chat", "prompt"}, {"chat", "turn"})
