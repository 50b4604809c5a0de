"""Parts of a chat for the clipboard, and blocks of code for files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from app.chat import clipboard, code_blocks
from app.chat.exchange import Exchange
from app.formatting import markdown
from app.formatting.markdown import CodeBlock
from app.ui.code_colours import SAVE
from app.ui.key_map import key_for
from app.ui.screens.code_blocks import CodeBlocksScreen, CodeChoice, SaveCode
from app.ui.widgets.turn import AnswerTurn
from engine.errors import MoeChatError

if TYPE_CHECKING:
    from app.ui.screens.chat import ChatScreen


class Copying:
    """Copies and saves, and says what and where to."""

    def __init__(self, chat: ChatScreen) -> None:
        self._chat = chat

    def action_copy_text(self) -> None:
        """Copy the selection; else stop the answer; else clear the prompt; else say how to quit."""
        selection = self._chat.get_selected_text()
        if selection:
            self._chat.call_later(self.copy, selection)
        elif self._chat.flow.stop():
            self._chat.status.show_engine()
        elif self._chat.prompt.clear_draft():
            undo = key_for(self._chat, "prompt.undo")
            self._chat.notify(f"Cleared; {undo} or up restores it.", timeout=3, markup=False)
        else:
            self._chat.notify(f"{key_for(self._chat, 'app.quit')} quits.", timeout=3)

    async def action_copy_turn(self) -> None:
        """Copy the turn that has the focus, else the last answer."""
        exchange, turn = self._chat.turn_actions.current, self._chat.turn_actions.focused
        answer = exchange.answer.text if exchange is not None and exchange.answer is not None else ""
        is_question = turn is not None and not isinstance(turn, AnswerTurn)
        await self.copy(exchange.question.text if exchange is not None and is_question else answer.strip("\n"))

    async def action_copy_code(self) -> None:
        """Copy the block of code of the current answer, or of the last one that has any; of several one is chosen."""
        if not self._lists_blocks():
            await self.copy_code("")

    async def copy_code(self, number: str) -> None:
        """Copy the block with a number; without one the last."""
        try:
            block = code_blocks.chosen(self._blocks, number)
        except MoeChatError as error:
            self._say(error)
        else:
            await self.copy(block.text)

    def action_save_code(self) -> None:
        """Save a block of code to a file; of several one is chosen."""
        if not self._lists_blocks():
            self.save_code("")

    def save_code(self, asked: str) -> None:
        """Save the block that `NUMBER FILE` names; without a file it is asked for."""
        try:
            block, name = code_blocks.read_save(self._blocks, asked)
            if not name:
                self._ask_for_file(block)
                return
            self._saved(block, code_blocks.save(block, name))
        except MoeChatError as error:
            self._say(error)

    async def on_click(self, exchange: Exchange, number: int, click: str) -> None:
        """A block was clicked: copy or save it."""
        blocks = _blocks_of(exchange)
        if number <= len(blocks):
            await self._chosen(CodeChoice(blocks[number - 1], click))

    async def _chosen(self, choice: CodeChoice | None) -> None:
        if choice is None:
            return
        if choice.click == SAVE:
            self._ask_for_file(choice.block)
        else:
            await self.copy(choice.block.text)

    def _ask_for_file(self, block: CodeBlock) -> None:
        def saved(path: Path | None) -> None:
            if path is not None:
                self._saved(block, path)

        self._chat.app.push_screen(SaveCode(block), saved)

    def _saved(self, block: CodeBlock, path: Path) -> None:
        self._chat.notify(f"Saved {code_blocks.about(block)}, to {path}", timeout=6, markup=False)

    def _say(self, error: MoeChatError) -> None:
        self._chat.notify(error.in_full, severity="warning", timeout=6, markup=False)

    def _lists_blocks(self) -> bool:
        """Whether there are several blocks: they are listed then, to choose one."""
        blocks = self._blocks
        if len(blocks) > 1:
            self._chat.app.push_screen(CodeBlocksScreen(blocks), self._chosen)
        return len(blocks) > 1

    @property
    def _blocks(self) -> list[CodeBlock]:
        """The blocks of the current answer, or of the last one before it that has any."""
        exchanges, current = self._chat.flow.conversation.exchanges, self._chat.turn_actions.current
        until = exchanges.index(current) + 1 if current is not None else 0
        return next(filter(None, map(_blocks_of, reversed(exchanges[:until]))), [])

    async def copy(self, text: str) -> None:
        """To the system's clipboard where a program for it is there, and to the terminal's; says where."""
        if not text:
            self._chat.notify("There is nothing to copy yet.")
            return
        self._chat.app.copy_to_clipboard(text)
        program = await clipboard.copy_by_program(text)
        size = f"{len(text):,} character{'' if len(text) == 1 else 's'}"
        where = f"with {program}" if program else "through the terminal (OSC 52), if it allows that"
        self._chat.notify(f"Copied {size} {where}.", timeout=3, markup=False)


def _blocks_of(exchange: Exchange) -> list[CodeBlock]:
    return markdown.code_blocks(exchange.answer.text) if exchange.answer is not None else []
