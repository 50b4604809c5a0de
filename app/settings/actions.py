"""Everything a user can do, one row each: key bindings, footer, palette, help and the user's key map read this table.

To add an action: a row here, and a method `action_<call>` on the screen or widget whose bindings are
`bindings_of("<scope>")` (see `app.ui.key_map`); the scope is what stands before the dot of the id.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

GROUPS = (
    "Writing",
    "Chat",
    "Answer",
    "A turn in focus",
    "Panels and engine",
    "Panels",
    "Menu of domains",
    "List of chats",
    "Settings",
    "Program",
)
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
    Action("prompt.undo", "ctrl+underscore,alt+z", "Undo", "undo typing", "Writing", "undo"),
    Action("prompt.redo", "alt+y", "Redo", "redo typing", "Writing", "redo"),
    Action("prompt.command", "/", "Command", "begin with it for commands; // sends a slash", "Writing"),
    Action(
        "chat.editor", "ctrl+e", "Editor", "write the message in your editor", "Writing", "edit_externally", "", True
    ),
    # The chat
    Action("chat.new", "ctrl+n", "New chat", "an empty chat in the same domain", "Chat", "new_chat", "", True),
    Action(
        "app.domain", "f3", "Domain", "begin a chat in a domain; its profile", "Chat", "choose_domain", "Domain", True
    ),
    Action(
        "app.chats", "ctrl+r", "Chats", "list of chats: open, search, rename, export", "Chat", "chats", "Chats", True
    ),
    Action("chat.copy", "ctrl+c", "Copy", "copy the selection; else stop; else clear the prompt", "Chat", "copy_text"),
    Action("chat.copy_answer", "", "Copy the answer", "copy the last answer, whole", "Chat", "copy_turn"),
    Action("chat.copy_code", "ctrl+y", "Copy code", "copy the last block of code", "Chat", "copy_code", "", True),
    Action("chat.find", "ctrl+f", "Find", "find text in this chat", "Chat", "find", "", True),
    Action("chat.versions", "alt+t", "Versions", "this chat's versions as a tree", "Chat", "show_versions", "", True),
    Action("chat.undo_delete", "", "Undo the deletion", "restore what was deleted last", "Chat", "undo_delete"),
    Action("chat.turn_before", "alt+up", "Turn before", "the focus to the turn before", "Chat", "to_turn(-1)"),
    Action("chat.turn_after", "alt+down", "Turn after", "the focus to the turn after", "Chat", "to_turn(1)"),
    Action("chat.page_up", "pageup", "Page up", "scroll the transcript up", "Chat", "page(-1)", in_palette=False),
    Action(
        "chat.page_down", "pagedown", "Page down", "scroll the transcript down", "Chat", "page(1)", in_palette=False
    ),
    Action("chat.decide", "f7", "Decide", "go to the choices above the prompt", "Chat", "decide", "Choose", True),
    Action("chat.top", "ctrl+home", "To the beginning", "to the beginning of the transcript", "Chat", "to_top"),
    Action("chat.bottom", "end", "Follow the answer", "to the end of the transcript", "Chat", "to_bottom"),
    # The answer
    Action(
        "chat.stop",
        "escape",
        "Stop",
        "back to the prompt; there: stop the answer, cancel a waiting message, stop loading",
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
    Action(
        "chat.regenerate", "ctrl+g", "Regenerate", "answer again; the earlier answer is kept", "Answer", "regenerate"
    ),
    Action(
        "chat.thinking",
        "ctrl+t",
        "Thinking",
        "show or fold the model's thinking",
        "Answer",
        "toggle_thinking",
        "",
        True,
    ),
    # A turn that has the focus
    Action(
        "turn.edit",
        "alt+e",
        "Edit",
        "edit the question, as a new version",
        "A turn in focus",
        "screen.edit_turn",
        "Edit",
    ),
    Action(
        "turn.continue",
        "alt+c",
        "Continue",
        "continue an answer that was stopped or cut",
        "A turn in focus",
        "screen.continue_turn",
        "Continue",
    ),
    Action(
        "turn.branch",
        "alt+v",
        "Branch",
        "continue from the turn in a new chat",
        "A turn in focus",
        "screen.branch_turn",
        "Branch",
    ),
    Action(
        "turn.delete",
        "ctrl+d",
        "Delete",
        "delete the turn, with its question or answer",
        "A turn in focus",
        "screen.delete_turn",
        "Delete",
    ),
    Action(
        "turn.context",
        "alt+i",
        "Context",
        "take it out of the context, or back into it",
        "A turn in focus",
        "screen.change_context",
    ),
    Action("turn.copy", "alt+w", "Copy the turn", "copy it as written", "A turn in focus", "screen.copy_turn", "Copy"),
    Action("turn.fold", "enter", "Fold", "show or fold what is long", "A turn in focus", "screen.fold_turn"),
    Action(
        "turn.earlier",
        "left",
        "Version before",
        "the version before, where there are several",
        "A turn in focus",
        "screen.version(-1)",
    ),
    Action(
        "turn.later",
        "right",
        "Next version",
        "the version after, where there are several",
        "A turn in focus",
        "screen.version(1)",
    ),
    # Panels and engine
    Action("chat.panels", "f4", "Panels", "full, one line, off", "Panels and engine", "cycle_panels", "Panels", True),
    Action(
        "chat.to_panels",
        "f6",
        "Into the panels",
        "to the panels, and back again",
        "Panels and engine",
        "to_panels",
        is_priority=True,
    ),
    *(
        Action(f"chat.panel_{name}", "", f"Panel {name}", about, "Panels and engine", f"maximise_panel('{name}')")
        for name, about in (
            ("residency", "which experts are on the device, maximised"),
            ("prefetch", "how routed experts were served, maximised"),
            ("aes", "substitutions by layer, maximised"),
            ("tpot", "time per token and what it is made of, maximised"),
            ("memory", "the byte budget and its parts, maximised"),
            ("link", "bandwidth and loads, maximised"),
            ("events", "the whole log of events"),
        )
    ),
    Action("panel.maximise", "enter", "Maximise", "maximise it", "Panels", "maximise", "Maximise"),
    Action("panel.up", "up", "Panel before", "to the panel before", "Panels", "step(-1)"),
    Action("panel.down", "down", "Next panel", "to the next panel", "Panels", "step(1)"),
    Action("map.layer", "enter", "Layer", "all about the layer under the cursor", "Panels", "choose", "Layer"),
    Action("map.up", "up", "Layer before", "the cursor to the layer before", "Panels", "move(-1)"),
    Action("map.down", "down", "Next layer", "the cursor to the next layer", "Panels", "move(1)"),
    Action("view.back", "escape", "Back", "back to the chat", "Panels", "back", "Back"),
    Action("view.previous", "left", "Panel before", "the panel before", "Panels", "turn(-1)", "Before", True),
    Action("view.next", "right", "Next panel", "the next panel", "Panels", "turn(1)", "Next", True),
    Action("view.mode", "f5", "Exact or approximate", "the other mode", "Panels", "toggle_mode", "Mode"),
    Action("layer.back", "escape", "Back", "back to where it was opened", "Panels", "back", "Back"),
    Action("layer.previous", "left", "Layer before", "the layer before", "Panels", "turn(-1)", "Before", True),
    Action("layer.next", "right", "Next layer", "the next layer", "Panels", "turn(1)", "Next", True),
    Action(
        "app.restart",
        "f8",
        "Load the model again",
        "after loading was stopped or failed, or the engine ended",
        "Panels and engine",
        "restart_engine",
        "Load again",
        True,
    ),
    Action(
        "app.configuration",
        "",
        "Show configuration",
        "the effective configuration",
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
    Action(
        "menu.build", "ctrl+b", "Build profile", "build its profile", "Menu of domains", "ask_build", "Build profile"
    ),
    Action(
        "menu.delete", "ctrl+d", "Delete profile", "delete its file", "Menu of domains", "ask_delete", "Delete profile"
    ),
    Action("menu.cancel", "ctrl+x", "Cancel", "stop building a profile", "Menu of domains", "cancel_task", "Cancel"),
    Action("menu.back", "escape", "Back", "back to the chat; else stop loading", "Menu of domains", "back", "Back"),
    # The list of chats
    Action("chats.open", "enter", "Open", "open the highlighted chat", "List of chats", "open", "Open"),
    Action("chats.rename", "ctrl+e", "Rename", "rename it", "List of chats", "rename", "Rename", True),
    Action("chats.delete", "ctrl+d", "Delete", "delete it, once confirmed", "List of chats", "delete", "Delete", True),
    Action(
        "chats.export",
        "ctrl+s",
        "Export",
        "to a file: .md to read, .json to keep",
        "List of chats",
        "export",
        "Export",
        True,
    ),
    Action(
        "chats.import", "ctrl+o", "Import", "from an exported .json file", "List of chats", "import", "Import", True
    ),
    Action("chats.undo", "ctrl+u", "Undo", "restore the last deleted chat", "List of chats", "undo", "Undo", True),
    Action("chats.bin", "ctrl+b", "Bin", "what was deleted", "List of chats", "bin", "Bin", True),
    Action("sheet.choose", "enter", "Choose", "restore it, or go to it", "List of chats", "choose", "Choose"),
    Action("sheet.back", "escape", "Back", "back to where you were", "List of chats", "back", "Back", True),
    Action("chats.back", "escape", "Back", "back to where you were", "List of chats", "back", "Back", True),
    # The settings
    Action("settings.up", "up", "Setting before", "to the setting before", "Settings", "move(-1)", is_priority=True),
    Action("settings.down", "down", "Next setting", "to the next setting", "Settings", "move(1)", is_priority=True),
    Action("settings.page_up", "pageup", "Page up", "a page up", "Settings", "page(-1)", is_priority=True),
    Action("settings.page_down", "pagedown", "Page down", "a page down", "Settings", "page(1)", is_priority=True),
    Action("settings.edit", "enter", "Change", "change its value", "Settings", "edit", "Change", True),
    Action("settings.reset", "ctrl+d", "Default", "back to the default", "Settings", "reset", "Default", True),
    Action("settings.load", "ctrl+l", "Load", "load the model with what was changed", "Settings", "load", "Load", True),
    Action("settings.back", "escape", "Back", "clear the search; else leave", "Settings", "back", "Back", True),
    # The program
    Action(
        "app.screenshot", "f9", "Screenshot", "save the screen as an SVG file", "Program", "save_screenshot", "", True
    ),
    Action("app.model", "", "Choose a model", "another model; the chat stays", "Program", "choose_model"),
    Action(
        "app.load", "", "Load with the settings", "load the model with what was changed", "Program", "load_settings"
    ),
    Action("app.welcome", "", "Welcome", "choose model, memory and domain from the start", "Program", "welcome"),
    Action("app.theme", "", "Light or dark", "the other theme", "Program", "toggle_theme"),
    Action(
        "app.palette", "ctrl+p", "Palette", "every action by name", "Program", "command_palette", "Palette", True, False
    ),
    Action("app.help", "f1", "Help", "keys and words", "Program", "help", "Help", True),
    Action("app.suspend", "ctrl+z", "Suspend", "to the shell; `fg` comes back", "Program", "suspend_process", "", True),
    Action("app.quit", "ctrl+q", "Quit", "quit; the chat is saved", "Program", "quit", "Quit", True),
    Action("app.settings", "f2", "Settings", "every setting, the keys too", "Program", "settings", "Settings", True),
)


@cache
def actions_of(scope: str) -> tuple[Action, ...]:
    """The actions of one scope, in the order of the table."""
    return tuple(action for action in ACTIONS if action.scope == scope)


def action_named(action_id: str) -> Action | None:
    """The action with that id."""
    return next((action for action in ACTIONS if action.id == action_id), None)
