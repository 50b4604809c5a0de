"""What keys, palette and commands do to the turns of a chat. The chat's screen builds on it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from textual.app import SuspendNotSupported
from textual.screen import Screen
from textual.widget import Widget

from app.chat import clipboard
from app.chat.exchange import Exchange
from app.chat.external_editor import edit
from app.chat.versions import version_rows
from app.storage.bin import BIN_DAYS, Restored
from app.ui.key_map import key_for
from app.ui.markdown_style import code_blocks, parser
from app.ui.screens.chat_flow import ChatFlow
from app.ui.screens.chat_sync import ChatSync
from app.ui.screens.confirm import Confirm
from app.ui.screens.sheets import AboutChat, EditQuestion
from app.ui.screens.turn_flow import TurnFlow
from app.ui.screens.versions import VersionsScreen
from app.ui.widgets.prompt import Prompt
from app.ui.widgets.transcript import Transcript
from app.ui.widgets.turn import AnswerTurn, TurnWidget
from engine.errors import MoeChatError

_EDITOR = "editor"


class ChatActions(Screen[None]):
    """Actions on the turn that has the focus, else on the last one."""

    flow: ChatFlow
    sync: ChatSync
    transcript: Transcript

    @property
    def turns(self) -> TurnFlow:
        """Steps on turns that are there."""
        return TurnFlow(self.flow)

    @property
    def focused_turn(self) -> TurnWidget | None:
        """The turn that has the focus."""
        return self.focused if isinstance(self.focused, TurnWidget) else None

    @property
    def current(self) -> Exchange | None:
        """What actions are about."""
        if self.focused_turn is not None:
            return self.focused_turn.exchange
        exchanges = self.flow.conversation.exchanges
        return exchanges[-1] if exchanges else None

    def text_field(self) -> Prompt:
        """Where text is typed into."""
        return self.query_one(Prompt)

    # Between turns

    async def action_to_turn(self, step: int) -> None:
        """Focus the turn before or after; behind the last one is the prompt."""
        entries = [entry for entry in self.transcript.entries if entry.exchange is not None]
        here = next((at for at, entry in enumerate(entries) if entry.widget is self.focused), len(entries))
        there = here + step
        if there >= len(entries):
            await self.action_to_bottom()
        elif there >= 0:
            await self.transcript.reveal(entries[there])
            if isinstance(widget := entries[there].widget, Widget):
                widget.focus(scroll_visible=False)

    async def action_to_top(self) -> None:
        """The beginning of the chat."""
        await self.transcript.to_start()

    async def action_to_bottom(self) -> None:
        """Follow the answer again."""
        await self.transcript.to_end()
        self.query_one(Prompt).focus()

    # On a turn

    async def action_regenerate(self) -> None:
        """Answer a question again; the earlier answer is kept as a version."""
        await self._do(self.turns.regenerate)

    async def action_continue_turn(self) -> None:
        """Go on with an answer that was stopped or cut."""
        await self._do(self.turns.go_on)

    async def action_branch_turn(self) -> None:
        """Go on from a turn in a chat of its own."""
        await self._do(self.turns.branch, "A branch: what follows is a chat of its own; the other is kept.")

    def action_edit_turn(self) -> None:
        """Ask a question differently."""
        exchange = self.current
        if exchange is None:
            self.notify("There is no question yet.")
            return

        async def ask(text: str | None) -> None:
            if text is not None and text != exchange.question.text:
                problem = await self.turns.ask_differently(exchange, text)
                if problem:
                    self._say(problem)
                    self.query_one(Prompt).give_back(text)
                self.query_one(Prompt).focus()

        self.app.push_screen(EditQuestion(exchange.question.text, self.query_one(Prompt).remember), ask)

    def action_delete_turn(self) -> None:
        """Delete a question and its answer, once confirmed."""
        exchange = self.current
        if exchange is None:
            self.notify("There is no turn yet.")
            return

        async def delete(is_meant: bool | None) -> None:
            if is_meant:
                problem = await self.turns.delete(exchange)
                self._say(problem or f"Deleted; /undo restores it, for {BIN_DAYS} days.")
                self.query_one(Prompt).focus()

        first_line = exchange.question.text.strip().partition("\n")[0][:200]
        self.app.push_screen(Confirm("Delete this question and its answer?", f"“{first_line}”"), delete)

    async def action_undo_delete(self) -> None:
        """Restore what was deleted last in this chat, or the chat that was deleted last."""
        try:
            restored = await self.sync.undo()
        except MoeChatError as error:
            self.notify(f"{error.message} {error.hint}", severity="warning", markup=False)
            return
        where = "" if self.flow.conversation.chat_id in restored.chat_ids else f": {self._place_of(restored)}"
        self.notify(f"Restored “{restored.deletion.title}”{where}.", timeout=6, markup=False)

    def _place_of(self, restored: Restored) -> str:
        if restored.deletion.is_chat:
            return f"{key_for(self, 'app.chats')} lists it"
        return f"its place was taken, so it is a version of its own; {key_for(self, 'chat.versions')} lists them"

    async def action_change_context(self) -> None:
        """Have a question and its answer in the context of later ones, or not."""
        exchange = self.current
        if exchange is None:
            self.notify("There is no turn yet.")
            return
        problem = await self.turns.change_context(exchange)
        now = "in the context" if exchange.is_in_context else "not in the context"
        self._say(problem or f"This turn is {now} of what follows.")

    def action_show_versions(self) -> None:
        """The versions of this chat, as a tree."""
        chat_id = self.flow.conversation.chat_id
        try:
            rows = version_rows(self.flow.recorder.versions(chat_id))
        except MoeChatError as error:
            self.notify(f"{error.message} {error.hint}", severity="error", markup=False)
            return
        if len(rows) < 2:
            again, edit_key = key_for(self, "chat.regenerate"), key_for(self, "turn.edit")
            self._say(f"This chat has one version. {again} answers again, {edit_key} asks a question differently.")
            return

        async def go(chosen: str | None) -> None:
            if chosen is not None and chosen != self.flow.conversation.chat_id:
                await self.open_chat(chosen)

        self.app.push_screen(VersionsScreen(rows, chat_id), go)

    async def close_sheets(self) -> None:
        """Close what was opened over the chat and is about it: another chat is going to be shown."""
        while isinstance(sheet := self.app.screen, AboutChat):
            sheet.leave()
            await self.app.pop_screen()

    async def action_version(self, step: int) -> None:
        """The next or previous version of the turn that has the focus."""
        turn = self.focused_turn
        if turn is None:
            return
        is_answer = isinstance(turn, AnswerTurn)
        chat_id = self.turns.other_version(turn.exchange, step, of_answer=is_answer)
        if chat_id is not None:
            position = turn.exchange.positions.start
            await self.open_chat(chat_id)
            await self._focus_turn(position + is_answer)

    def action_fold_turn(self) -> None:
        """Show or fold what is long."""
        if self.focused_turn is not None:
            self.focused_turn.toggle_fold()

    def action_toggle_thinking(self) -> None:
        """Open or fold what the model thought, everywhere."""
        self.transcript.show_all_thinking(not self.transcript.shows_thinking)

    async def ask(self, text: str) -> None:
        """Ask a question in this chat."""
        raise NotImplementedError

    async def open_chat(self, chat_id: str) -> bool:
        """Go on with a chat that was kept; False when it cannot be."""
        raise NotImplementedError

    # Copying

    async def action_copy_turn(self) -> None:
        """Copy the turn that has the focus, else the last answer."""
        exchange, turn = self.current, self.focused_turn
        answer = exchange.answer.text if exchange is not None and exchange.answer is not None else ""
        is_question = turn is not None and not isinstance(turn, AnswerTurn)
        await self.copy(exchange.question.text if exchange is not None and is_question else answer.strip("\n"))

    async def action_copy_code(self) -> None:
        """Copy the last block of code of the current answer, or of the last one that has any."""
        exchanges = self.flow.conversation.exchanges
        until = exchanges.index(self.current) + 1 if self.current is not None else 0
        for exchange in reversed(exchanges[:until]):
            blocks = code_blocks(parser().parse(exchange.answer.text)) if exchange.answer is not None else []
            if blocks:
                await self.copy(blocks[-1])
                return
        self.notify("There is no block of code yet.")

    async def copy(self, text: str) -> None:
        """To the system's clipboard where a program for it is there, and to the terminal's; says where."""
        if not text:
            self.notify("There is nothing to copy yet.")
            return
        self.app.copy_to_clipboard(text)
        program = await clipboard.copy_by_program(text)
        size = f"{len(text):,} character{'' if len(text) == 1 else 's'}"
        where = f"with {program}" if program else "through the terminal (OSC 52), if it allows that"
        self.notify(f"Copied {size} {where}.", timeout=3, markup=False)

    def action_edit_externally(self) -> None:
        """Write the message in the user's own editor; what the engine writes meanwhile is kept."""
        if not any(worker.group == _EDITOR for worker in self.workers):
            self.run_worker(self._edit_externally(), group=_EDITOR)

    async def _edit_externally(self) -> None:
        prompt = self.query_one(Prompt)
        try:
            with self.app.batch_update(), self.app.suspend():  # nothing is drawn meanwhile
                text = await asyncio.to_thread(edit, prompt.whole_text)
        except MoeChatError as error:
            self.notify(f"{error.message} {error.hint}", severity="error", markup=False)
        except SuspendNotSupported:
            self.notify("This terminal cannot be handed to an editor.", severity="error")
        else:
            prompt.set_text(text)
            prompt.focus()

    async def _do(self, step: Callable[[Exchange], Awaitable[str]], done: str = "") -> None:
        exchange = self.current
        if exchange is None:
            self.notify("There is no turn yet.")
            return
        problem = await step(exchange)
        self._say(problem or done)
        if not problem:
            self.query_one(Prompt).focus()

    async def _focus_turn(self, position: int) -> None:
        entry = self.transcript.entry_at(position)
        if entry is not None:
            await self.transcript.reveal(entry)
        if entry is not None and entry.widget is not None:
            entry.widget.focus(scroll_visible=False)

    def _say(self, text: str) -> None:
        if text:
            self.notify(text, markup=False)
