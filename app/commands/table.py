"""Everything a user can do, one row each: keys, footer, palette, help, slash commands and those of the plain chat are
made from it; the places only bind it.

To add a command: a row here. For its key, a method `action_<call>` on the screen or widget whose bindings are
`bindings_of("<scope>")` (see `app.ui.key_map`); the scope is what stands before the dot of the id. For what is typed
behind its slash command, `command_<name>` on the screen of the chat, and in the plain chat unless it needs a screen.
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
    "Blocks of code",
    "Presets",
    "Compare the modes",
    "Settings",
    "Program",
)
"""The order in which help and the palette list commands."""


@dataclass(frozen=True, slots=True)
class Command:
    """One thing a user can do."""

    id: str
    """`scope.name`: stable, it is what the user's key map names."""
    keys: str
    """The default key, or several with commas; empty: there is none."""
    title: str
    """In the palette and the footer's place for it."""
    meaning: str
    """One line for the palette, the help and the list of slash commands."""
    group: str
    call: str = ""
    """The Textual action, such as `stop` or `app.help`; empty: a fixed key of a widget, told in the help only."""
    footer: str = ""
    """The word in the footer; empty: not there."""
    is_priority: bool = False
    """The key acts before the focused widget sees it."""
    in_palette: bool = True
    slash: str = ""
    """Its name behind a slash, then other words for it; empty: it cannot be typed."""
    argument: str = ""
    """What may follow the slash command, for a person; empty: nothing may."""
    needs_argument: bool = False
    choices: str = ""
    """What can follow, by the name of a list that the screen knows."""
    needs_screen: bool = False
    """The plain chat does not have it."""

    @property
    def words(self) -> tuple[str, ...]:
        """What can be typed behind a slash, its name first."""
        return tuple(self.slash.split())

    @property
    def name(self) -> str:
        """Its name behind a slash."""
        return self.words[0]

    @property
    def takes(self) -> str:
        """What may follow it, in brackets where it need not."""
        return self.argument if self.needs_argument or not self.argument else f"[{self.argument}]"

    @property
    def action(self) -> str:
        """Its Textual action, as a screen runs it."""
        return f"app.{self.call}" if self.scope == "app" else self.call

    @property
    def scope(self) -> str:
        """Where its key is live: `app` everywhere, otherwise the screen or widget of that name."""
        return self.id.partition(".")[0]


COMMANDS: tuple[Command, ...] = (
    # Fixed keys of the prompt
    Command("prompt.send", "enter", "Send", "send the message", "Writing"),
    Command("prompt.newline", "shift+enter,ctrl+j", "New line", "break the line", "Writing"),
    Command("prompt.recall", "up,down", "History", "what was sent before, from the first and last line", "Writing"),
    Command("prompt.undo", "ctrl+underscore,alt+z", "Undo", "undo typing", "Writing", "undo"),
    Command("prompt.redo", "alt+y", "Redo", "redo typing", "Writing", "redo"),
    Command("prompt.command", "/", "Command", "begin with it for commands; // sends a slash", "Writing"),
    Command("chat.editor", "ctrl+e", "Editor", "write the message in your editor", "Writing", "edit_externally",
            is_priority=True, slash="editor", needs_screen=True),
    # The chat
    Command("chat.new", "ctrl+n", "New chat", "an empty chat in the same domain, or in another", "Chat", "new_chat",
            is_priority=True, slash="new clear", argument="DOMAIN", choices="domains"),
    Command("app.domain", "f3", "Domain", "a chat in a domain; alone: all of them", "Chat",
            "choose_domain", "Domain", True, slash="domain domains", argument="NAME", choices="domains"),
    Command("app.chats", "ctrl+r", "Chats", "list of chats: open, search, rename, export", "Chat", "chats", "Chats",
            True,
            slash="chats", argument="TEXT"),
    Command("chat.copy", "ctrl+c", "Copy", "copy the selection; else stop; else clear the prompt", "Chat", "copy_text"),
    Command("chat.copy_answer", "", "Copy the answer",
            "copy the answer, its code, the question, the chat", "Chat", "copy_turn",
            slash="copy", argument="WHAT", choices="copies", needs_screen=True),
    Command("chat.copy_code", "ctrl+y", "Copy code", "copy a block of code; of several choose one, to copy or to save",
            "Chat", "copy_code", is_priority=True),
    Command("chat.save_code", "", "Save code", "a block of code of the answer to a new file", "Chat",
            "save_code", slash="save", argument="NUMBER FILE"),
    Command("chat.find", "ctrl+f", "Find", "find text in this chat", "Chat", "find", is_priority=True, slash="find",
            argument="TEXT", needs_screen=True),
    Command("chat.versions", "alt+t", "Versions", "this chat's versions as a tree", "Chat", "show_versions",
            is_priority=True, slash="versions", needs_screen=True),
    Command("chat.undo_delete", "", "Undo the deletion",
            "restore what was deleted last: a turn of this chat, or a chat", "Chat", "undo_delete", slash="undo"),
    Command("chat.open", "", "Open a chat", "open a chat that is kept", "Chat", "command('open')",
            slash="open", argument="CHAT", needs_argument=True),
    Command("chat.title", "", "Title", "rename this chat", "Chat", "command('title')",
            slash="title", argument="TITLE", needs_argument=True),
    Command("chat.system", "", "System prompt", "what the model is told first; alone: show it",
            "Chat", "command('system')", slash="system", argument="TEXT"),
    Command("chat.presets", "", "Presets", "system prompt, sampling and mode; alone: list them", "Chat",
            "presets", slash="preset", argument="NAME", choices="presets"),
    Command("chat.export", "", "Export", "to a file: Markdown to read, JSON to keep", "Chat",
            "command('export')", slash="export", argument="FORMAT FILE", choices="formats"),
    Command("chat.turn_before", "alt+up", "Turn before", "the focus to the turn before", "Chat", "to_turn(-1)"),
    Command("chat.turn_after", "alt+down", "Turn after", "the focus to the turn after", "Chat", "to_turn(1)"),
    Command("chat.page_up", "pageup", "Page up", "scroll the transcript up", "Chat", "page(-1)", in_palette=False),
    Command("chat.page_down", "pagedown", "Page down", "scroll the transcript down", "Chat", "page(1)",
            in_palette=False),
    Command("chat.decide", "f7", "Decide", "go to the choices above the prompt", "Chat", "decide", "Choose", True),
    Command("chat.top", "ctrl+home", "To the beginning", "to the beginning of the transcript", "Chat", "to_top"),
    Command("chat.bottom", "end", "Follow the answer", "to the end of the transcript", "Chat", "to_bottom"),
    # The answer
    Command("chat.stop", "escape", "Stop",
            "back to the prompt; there: stop the answer, cancel a waiting message, stop loading", "Answer", "stop",
            "Stop"),
    Command("chat.mode", "f5", "Exact or approximate", "exact or approximate, from the next token on", "Answer",
            "toggle_mode", "Mode", True, slash="mode", argument="MODE", choices="modes"),
    Command("chat.strategy", "", "Strategy", "how experts are loaded and kept; alone: which",
            "Answer", "command('strategy')", slash="strategy", argument="NAME", choices="strategies"),
    Command("chat.regenerate", "ctrl+g", "Regenerate", "answer again; the earlier answer is kept", "Answer",
            "regenerate", slash="regenerate again"),
    Command("chat.compare", "alt+o", "Compare the modes",
            "the answer beside one in the other mode", "Answer", "compare",
            slash="compare", needs_screen=True),
    Command("chat.stats", "", "Statistics of the answer", "everything that was counted for the last answer", "Answer",
            "command('stats')", slash="stats"),
    Command("chat.thinking", "ctrl+t", "Thinking", "show or fold the thinking; CHOICE: how much",
            "Answer", "toggle_thinking", is_priority=True, slash="thinking", argument="CHOICE", choices="thinking"),
    # A turn that has the focus
    Command("turn.edit", "alt+e", "Edit", "edit the question, as a new version", "A turn in focus",
            "screen.edit_turn", "Edit",
            slash="edit", needs_screen=True),
    Command("turn.continue", "alt+c", "Continue", "go on with an answer that was stopped or cut", "A turn in focus",
            "screen.continue_turn", "Continue", slash="continue"),
    Command("turn.branch", "alt+v", "Branch", "continue from the turn in a new chat", "A turn in focus",
            "screen.branch_turn", "Branch", slash="branch", needs_screen=True),
    Command("turn.delete", "ctrl+d", "Delete", "delete the turn, with its question or answer", "A turn in focus",
            "screen.delete_turn", "Delete", slash="delete"),
    Command("turn.context", "alt+i", "Context", "have the turn in the context of what follows, or not",
            "A turn in focus", "screen.change_context", slash="context", needs_screen=True),
    Command("turn.copy", "alt+w", "Copy the turn", "copy it as written", "A turn in focus", "screen.copy_turn", "Copy"),
    Command("turn.fold", "enter", "Fold", "show or fold what is long", "A turn in focus", "screen.fold_turn"),
    Command("turn.earlier", "left", "Version before", "the version before, where there are several", "A turn in focus",
            "screen.version(-1)"),
    Command("turn.later", "right", "Next version", "the version after, where there are several", "A turn in focus",
            "screen.version(1)"),
    # Panels and engine
    Command("chat.panels", "f4", "Panels", "full, one line, off; on a narrow terminal full ones first",
            "Panels and engine", "cycle_panels", "Panels", True),
    Command("chat.to_panels", "f6", "Into the panels", "to the panels, and back again", "Panels and engine",
            "to_panels", is_priority=True),
    *(
        Command(f"chat.panel_{name}", "", f"Panel {name}", about, "Panels and engine", f"maximise_panel('{name}')")
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
    Command("panel.maximise", "enter", "Maximise", "show the panel on the whole screen", "Panels", "maximise",
            "Maximise"),
    Command("panel.up", "up", "Panel before", "to the panel before", "Panels", "step(-1)"),
    Command("panel.down", "down", "Next panel", "to the next panel", "Panels", "step(1)"),
    Command("map.layer", "enter", "Layer", "in the map: all about the layer under the cursor", "Panels", "choose",
            "Layer"),
    Command("map.up", "up", "Layer before", "in the map: the cursor to the layer before", "Panels", "move(-1)"),
    Command("map.down", "down", "Next layer", "in the map: the cursor to the next layer", "Panels", "move(1)"),
    Command("view.back", "escape", "Back", "on a maximised panel: back to the chat", "Panels", "back", "Back"),
    Command("view.previous", "left", "Panel before", "on a maximised panel: the panel before", "Panels", "turn(-1)",
            "Before", True),
    Command("view.next", "right", "Next panel", "on a maximised panel: the next one", "Panels", "turn(1)", "Next",
            True),
    Command("view.mode", "f5", "Exact or approximate", "on a maximised panel: the other mode", "Panels",
            "toggle_mode", "Mode"),
    Command("layer.back", "escape", "Back", "on a layer: back to where it was opened", "Panels", "back", "Back"),
    Command("layer.previous", "left", "Layer before", "on a layer: the layer before", "Panels", "turn(-1)", "Before",
            True),
    Command("layer.next", "right", "Next layer", "on a layer: the next one", "Panels", "turn(1)", "Next", True),
    Command("app.restart", "f8", "Load the model again", "after loading was stopped or failed, or the engine ended",
            "Panels and engine", "restart_engine", "Load again", True),
    Command("app.configuration", "", "Show configuration", "the effective configuration", "Panels and engine",
            "show_configuration"),
    # The menu of domains
    Command("menu.choose", "enter", "Choose", "begin a chat in the highlighted domain", "Menu of domains", "choose",
            "Choose"),
    Command("menu.build", "ctrl+b", "Build profile", "build its profile", "Menu of domains", "ask_build",
            "Build profile"),
    Command("menu.delete", "ctrl+d", "Delete profile", "delete its file", "Menu of domains", "ask_delete",
            "Delete profile"),
    Command("menu.cancel", "ctrl+x", "Cancel", "stop building a profile", "Menu of domains", "cancel_task", "Cancel"),
    Command("menu.back", "escape", "Back", "back to the chat; else stop loading", "Menu of domains", "back", "Back"),
    # The list of chats
    Command("chats.open", "enter", "Open", "open the highlighted chat", "List of chats", "open", "Open"),
    Command("chats.rename", "ctrl+e", "Rename", "rename it", "List of chats", "rename", "Rename", True),
    Command("chats.delete", "ctrl+d", "Delete", "delete it, once confirmed", "List of chats", "delete", "Delete", True),
    Command("chats.export", "ctrl+s", "Export", "to a file: .md to read, .json to keep", "List of chats", "export",
            "Export", True),
    Command("chats.import", "ctrl+o", "Import", "from an exported .json file, of other programs too", "List of chats",
            "import", "Import", True),
    Command("chats.undo", "ctrl+u", "Undo", "restore the last deleted chat", "List of chats", "undo", "Undo", True),
    Command("chats.bin", "ctrl+b", "Bin", "what was deleted", "List of chats", "bin", "Bin", True),
    Command("sheet.choose", "enter", "Choose", "restore it, or go to it", "List of chats", "choose", "Choose", True),
    Command("sheet.back", "escape", "Back", "back to where you were", "List of chats", "back", "Back", True),
    Command("chats.back", "escape", "Back", "back to where you were", "List of chats", "back", "Back", True),
    # The blocks of code of an answer
    Command("code.copy", "enter", "Copy", "copy the highlighted block", "Blocks of code", "choose", "Copy", True),
    Command("code.save", "ctrl+s", "Save", "write the highlighted block to a file", "Blocks of code", "save", "Save",
            True),
    Command("code.back", "escape", "Back", "back to the chat", "Blocks of code", "back", "Back", True),
    # The presets
    Command("preset.choose", "enter", "Choose", "have this chat go on with it", "Presets", "choose", "Choose", True),
    Command("preset.delete", "ctrl+d", "Delete", "delete it", "Presets", "delete", "Delete", True),
    Command("preset.undo", "ctrl+u", "Undo", "restore the one that was deleted last", "Presets", "undo", "Undo", True),
    Command("preset.back", "escape", "Back", "back to the chat", "Presets", "back", "Back", True),
    # Two answers beside each other
    Command("compare.side", "tab", "Other answer", "the focus to the other answer, to scroll it", "Compare the modes",
            "other_side", "Other answer"),
    Command("compare.back", "escape", "Back", "back to the chat", "Compare the modes", "back", "Back", True),
    # The settings
    Command("settings.up", "up", "Setting before", "to the setting before", "Settings", "move(-1)", is_priority=True),
    Command("settings.down", "down", "Next setting", "to the next setting", "Settings", "move(1)", is_priority=True),
    Command("settings.page_up", "pageup", "Page up", "a page up", "Settings", "page(-1)", is_priority=True),
    Command("settings.page_down", "pagedown", "Page down", "a page down", "Settings", "page(1)", is_priority=True),
    Command("settings.edit", "enter", "Change", "change its value", "Settings", "edit", "Change", True),
    Command("settings.reset", "ctrl+d", "Default", "back to the default", "Settings", "reset", "Default", True),
    Command("settings.load", "ctrl+l", "Load", "load the model with what was changed", "Settings", "load", "Load",
            True),
    Command("settings.back", "escape", "Back", "clear the search; else leave", "Settings", "back", "Back", True),
    # The program
    Command("app.screenshot", "f9", "Screenshot", "save the screen as an SVG file", "Program", "save_screenshot",
            is_priority=True),
    Command("app.model", "", "Choose a model", "another model; the chat stays", "Program", "choose_model",
            slash="model", needs_screen=True),
    Command("app.load", "", "Load with the settings", "load the model with what was changed", "Program",
            "load_settings"),
    Command("app.welcome", "", "Welcome", "choose model, memory and domain from the start", "Program", "welcome"),
    Command("app.theme", "", "Light or dark", "the other theme", "Program", "toggle_theme"),
    Command("app.palette", "ctrl+p", "Palette", "every action by name", "Program", "command_palette", "Palette", True,
            in_palette=False),
    Command("app.help", "f1", "Help", "keys, commands and words", "Program", "help", "Help", True, slash="help"),
    Command("app.suspend", "ctrl+z", "Suspend", "to the shell; `fg` comes back", "Program", "suspend_process",
            is_priority=True),
    Command("app.quit", "ctrl+q", "Quit", "quit; the chat is saved", "Program", "quit", "Quit", True, slash="quit"),
    Command("app.settings", "f2", "Settings", "every setting, the keys too", "Program", "settings", "Settings", True,
            slash="settings", needs_screen=True),
)  # fmt: skip


@cache
def commands_of(scope: str) -> tuple[Command, ...]:
    """The commands of one scope, in the order of the table."""
    return tuple(command for command in COMMANDS if command.scope == scope)


def command_with_id(command_id: str) -> Command | None:
    """The command with that id."""
    return next((command for command in COMMANDS if command.id == command_id), None)
