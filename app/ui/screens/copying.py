"""Parts of a chat for the clipboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.chat import clipboard
from app.ui.key_map import key_for
from app.ui.markdown_style import code_blocks, parser
from app.ui.widgets.turn import AnswerTurn

if TYPE_CHECKING:
    from app.ui.screens.chat import ChatScreen


class Copying:
    """Copies, and says what was copied and how."""

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
            self._chat.notify(f"Cleared; {undo} brings it back, and so does up.", timeout=3, markup=False)
        else:
            self._chat.notify(f"{key_for(self._chat, 'app.quit')} quits.", timeout=3)

    async def action_copy_turn(self) -> None:
        """Copy the turn that has the focus, else the last answer."""
        exchange, turn = self._chat.turn_actions.current, self._chat.turn_actions.focused
        answer = exchange.answer.text if exchange is not None and exchange.answer is not None else ""
        is_question = turn is not None and not isinstance(turn, AnswerTurn)
        await self.copy(exchange.question.text if exchange is not None and is_question else answer.strip("\n"))

    async def action_copy_code(self) -> None:
        """Copy the last block of code of the current answer, or of the last one that has any."""
        exchanges, current = self._chat.flow.conversation.exchanges, self._chat.turn_actions.current
        until = exchanges.index(current) + 1 if current is not None else 0
        for exchange in reversed(exchanges[:until]):
            blocks = code_blocks(parser().parse(exchange.answer.text)) if exchange.answer is not None else []
            if blocks:
                await self.copy(blocks[-1])
                return
        self._chat.notify("There is no block of code yet.")

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
