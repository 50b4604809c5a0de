"""The blocks of code of an answer, to copy or save one; and the name of the file that one is saved to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from app.chat import code_blocks
from app.formatting.markdown import CodeBlock
from app.formatting.sanitise import visible
from app.ui.code_colours import COPY, SAVE, suffix_of
from app.ui.key_map import bindings_of
from app.ui.screens.list_sheet import ListSheet
from app.ui.screens.sheets import AboutChat
from engine.errors import MoeChatError


class CodeChoice(NamedTuple):
    """A block, and what is to be done with it: COPY or SAVE."""

    block: CodeBlock
    click: str


class CodeBlocksScreen(AboutChat, ListSheet[CodeChoice]):
    """The blocks, and the highlighted one as it is. Dismisses with what was chosen, or None."""

    ACTION_SCOPE: ClassVar[str] = "code"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("code")]

    def __init__(self, blocks: Sequence[CodeBlock]) -> None:
        super().__init__(f"{len(blocks)} blocks of code in this answer")
        self._blocks = blocks

    def compose_below(self) -> ComposeResult:
        with VerticalScroll(id="code-shown", can_focus=False):
            yield Static(id="code-text", markup=False)

    def on_mount(self) -> None:
        self.listed.set_options(map(_option, self._blocks))
        self.listed.highlighted = len(self._blocks) - 1

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        self.query_one("#code-text", Static).update(visible(self._blocks[event.option_index].text))
        self.query_one("#code-shown").scroll_home(animate=False)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(CodeChoice(self._blocks[event.option_index], COPY))

    def action_save(self) -> None:
        """Save the highlighted block."""
        highlighted = self.listed.highlighted
        if highlighted is not None:
            self.dismiss(CodeChoice(self._blocks[highlighted], SAVE))


class SaveCode(AboutChat, ModalScreen[Path | None]):
    """Asks for a file and writes the block to it. Dismisses with where it is; stays open while that fails."""

    AUTO_FOCUS = "#code-file"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Leave", priority=True)]

    def __init__(self, block: CodeBlock) -> None:
        super().__init__()
        self._block = block

    def compose(self) -> ComposeResult:
        name = code_blocks.free_name(self._block, suffix_of(self._block.language), Path.cwd())
        with Vertical(classes="sheet"):
            yield Static(visible(f"Save {code_blocks.about(self._block)}"), classes="sheet-title", markup=False)
            yield Input(name, placeholder="A new file", id="code-file", select_on_focus=False)
            yield Static(id="code-note", markup=False)
            yield Static("enter saves · esc leaves it", classes="sheet-close")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Write the file; an earlier one of that name stays as it is."""
        if not event.value.strip():
            return
        try:
            path = code_blocks.save(self._block, event.value.strip())
        except MoeChatError as error:
            self.query_one("#code-note", Static).update(visible(error.in_full))
        else:
            self.dismiss(path)


def _option(block: CodeBlock) -> Option:
    """Number, language and length, then how it begins. The end may be cut."""
    first_line = next((line.strip() for line in block.text.splitlines() if line.strip()), "")
    number, _, rest = code_blocks.about(block).removeprefix("block ").partition(", ")
    return Option(
        Content.assemble((f"{number} ", "bold $primary"), (f"{visible(rest)}  ", "$quiet"), visible(first_line))
    )
