"""Everything a user can do, one row each: key bindings, footer, palette, help and the user's key map read this table.

To add an action: a row here, and a method `action_<call>` on the screen or widget whose bindings are
`bindings_of("<scope>")` (see `app.key_map`); the scope is what stands before the dot of the id.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

GROUPS = ("Writing", "Chat", "Answer", "Panels and engine", "Menu of domains", "Program")
"""The order in which help and the palette list actions."""


@dataclass(frozen=True, slots=True)
class Action:
    """One thing a user can do."""

    id: str
    """`scope.name`: stable, it is what the user's key map names."""
    keys: str
    """The default key, or several with commas; empty: reached by the palette only."""
    title: str
    """In the palette and the footer's place for it."""
    meaning: str
    """One line for the palette and the help."""
    group: str
    call: str = ""
    """The Textual action, such as `stop` or `app.help`; empty: a fixed key of a widget, told in the help only."""
    footer: str = ""
    """The word in the footer; empty: not there."""
    is_priority: bool = False
    """The key acts before the focused widget sees it."""
    in_palette: bool = True

    @property
    def scope(self) -> str:
        """Where its key is live: `app` everywhere, otherwise the screen or widget of that name."""
        return self.id.partition(".")[0]


ACTIONS: tuple[Action, ...] = (
    # Fixed keys of the prompt
    Action("prompt.send", "enter", "Send", "send the message", "Writing"),
    Action("prompt.newline", "shift+enter,ctrl+j", "New line", "break the line", "Writing"),
    Action("prompt.recall", "up,down", "History", "what was sent before, from the first and last line", "Writing"),
    # The chat
    Action("chat.new", "ctrl+n", "New chat", "an empty chat in the same domain", "Chat", "new_chat", "New", True),
    Action(
        "app.domain", "f3", "Domain", "begin a chat in a domain; its profile", "Chat", "choose_domain", "Domain", True
    ),
    Action("chat.copy", "ctrl+c", "Copy", "copy what is selected; else stop the answer", "Chat", "copy_text"),
    Action("chat.page_up", "pageup", "Page up", "scroll the transcript up", "Chat", "page(-1)", in_palette=False),
    Action(
        "chat.page_down", "pagedown", "Page down", "scroll the transcript down", "Chat", "page(1)", in_palette=False
    ),
    Action("chat.bottom", "end", "Follow the answer", "to the end of the transcript", "Chat", "to_bottom"),
    # The answer
    Action(
        "chat.stop",
        "escape",
        "Stop",
        "stop, and keep the partial answer; take back a waiting message",
        "Answer",
        "stop",
        "Stop",
    ),
    Action(
        "chat.mode",
        "f5",
        "Exact or approximate",
        "the other mode, from the next token on",
        "Answer",
        "toggle_mode",
        "Mode",
        True,
    ),
    # Panels and engine
    Action("chat.panels", "f4", "Panels", "full, one line, off", "Panels and engine", "cycle_panels", "Panels", True),
    Action(
        "chat.restart",
        "f8",
        "Restart the engine",
        "load the model anew after the engine stopped",
        "Panels and engine",
        "restart_engine",
        "Restart engine",
        True,
    ),
    Action(
        "app.configuration",
        "",
        "Show configuration",
        "what the engine runs with",
        "Panels and engine",
        "show_configuration",
    ),
    # The menu of domains
    Action(
        "menu.choose",
        "enter",
        "Choose",
        "begin a chat in the highlighted domain",
        "Menu of domains",
        "choose",
        "Choose",
    ),
    Action("menu.build", "b", "Build profile", "build its profile", "Menu of domains", "ask_build", "Build profile"),
    Action(
        "menu.delete", "d", "Delete profile", "delete its profile", "Menu of domains", "ask_delete", "Delete profile"
    ),
    Action("menu.cancel", "c", "Cancel", "stop building a profile", "Menu of domains", "cancel_task", "Cancel"),
    Action("menu.back", "escape", "Back", "back to the chat", "Menu of domains", "back", "Back"),
    # The program
    Action("app.theme", "", "Light or dark", "the other theme", "Program", "toggle_theme"),
    Action(
        "app.palette", "ctrl+p", "Palette", "every action by name", "Program", "command_palette", "Palette", True, False
    ),
    Action("app.help", "f1", "Help", "keys and words", "Program", "help", "Help", True),
    Action("app.suspend", "ctrl+z", "Suspend", "to the shell; `fg` comes back", "Program", "suspend_process", "", True),
    Action("app.quit", "ctrl+q", "Quit", "leave; the chat is kept", "Program", "quit", "Quit", True),
)


@cache
def actions_of(scope: str) -> tuple[Action, ...]:
    """The actions of one scope, in the order of the table."""
    return tuple(action for action in ACTIONS if action.scope == scope)


def action_named(action_id: str) -> Action | None:
    """The action with that id."""
    return next((action for action in ACTIONS if action.id == action_id), None)
