"""The table of actions and the user's key map over it."""

from __future__ import annotations

from itertools import combinations

import pytest
from textual.actions import parse

from app.commands.table import COMMANDS, GROUPS, command_with_id, commands_of
from app.ui.chat_app import ChatApp
from app.ui.key_map import KeyMap, bindings_of, is_key, is_text
from app.ui.screens.chat import ChatScreen
from app.ui.screens.chats import ChatsScreen
from app.ui.screens.domain_menu import DomainMenu
from app.ui.screens.settings import SettingsScreen


def keys_of(key_map: KeyMap, action_id: str) -> tuple[str, ...]:
    action = command_with_id(action_id)
    assert action is not None
    return key_map.keys_of(action)


def test_the_table_is_whole() -> None:
    assert len({action.id for action in COMMANDS}) == len(COMMANDS)
    for action in COMMANDS:
        assert action.group in GROUPS
        assert action.keys or action.in_palette, action.id
        assert action.meaning
        assert all(is_key(key) for key in KeyMap().keys_of(action)), action.id
        assert not action.call or not any(is_text(key) for key in KeyMap().keys_of(action)), action.id


@pytest.mark.parametrize(
    ("scope", "owner"),
    [
        ("app", ChatApp),
        ("chat", ChatScreen),
        ("menu", DomainMenu),
        ("settings", SettingsScreen),
        ("chats", ChatsScreen),
    ],
)
def test_each_row_does_something(scope: str, owner: type) -> None:
    for action in commands_of(scope):
        assert not action.call or hasattr(owner, f"action_{parse(action.call)[1]}"), action.id


def test_no_two_defaults_want_the_same_key_in_one_place() -> None:
    for first, second in combinations(COMMANDS, 2):
        if first.scope == second.scope or "app" in (first.scope, second.scope):
            assert not set(first.keys.split(",")) & set(second.keys.split(",")) - {""}, (first.id, second.id)


def test_bindings_carry_the_ids_that_the_key_map_names() -> None:
    ids = {binding.id for binding in bindings_of("chat")}
    assert "chat.mode" in ids
    assert all(str(action_id).startswith("chat.") for action_id in ids)


def test_a_key_of_the_users_own_replaces_the_default() -> None:
    key_map = KeyMap({"chat.mode": "F12, alt+m"})
    assert key_map.problems == []
    assert keys_of(key_map, "chat.mode") == ("f12", "alt+m")
    assert keys_of(key_map, "chat.panels") == ("f4",)


def test_two_actions_can_swap_their_keys() -> None:
    key_map = KeyMap({"chat.mode": "f4", "chat.panels": "f5"})
    assert key_map.problems == []
    assert keys_of(key_map, "chat.panels") == ("f5",)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"chat.mod": "f12"}, "did you mean chat.mode?"),
        ({"prompt.send": "f12"}, "cannot be changed"),
        ({"chat.mode": "ctrl+nosuch"}, "does not exist"),
        ({"chat.mode": ""}, "no key"),
        ({"chat.mode": "m"}, "needed to type"),
        ({"turn.delete": "d"}, "needed to type"),
        ({"menu.build": "minus"}, "needed to type"),
        ({"chat.mode": "f4"}, "cannot be both chat.mode and chat.panels"),
        ({"chat.mode": "f1"}, "cannot be both chat.mode and app.help"),
        ({"app.help": "f4"}, "cannot be both app.help and chat.panels"),
        ({"chat.mode": "enter"}, "cannot be both chat.mode and prompt.send"),
    ],
)
def test_what_cannot_be_followed_is_said_and_the_default_stays(line: dict[str, str], said: str) -> None:
    key_map = KeyMap(line)
    (problem,) = key_map.problems
    assert said in problem
    assert key_map.changed == {}


def test_of_two_wishes_for_one_key_the_first_is_granted() -> None:
    key_map = KeyMap({"chat.mode": "f12", "chat.panels": "f12"})
    assert len(key_map.problems) == 1
    assert (keys_of(key_map, "chat.mode"), keys_of(key_map, "chat.panels")) == (("f12",), ("f4",))


def test_the_same_key_may_mean_something_else_elsewhere() -> None:
    assert KeyMap({"menu.build": "f4"}).problems == []
