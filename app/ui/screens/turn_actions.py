"""What keys, palette and commands do to the turns of a chat: to the one that has the focus, else to the last one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from textual.widget import Widget

from app.chat.exchange import Exchange
from app.chat.versions import version_rows
from app.storage.bin import BIN_DAYS, Restored
from app.ui.key_map import key_for
from app.ui.screens.confirm import Confirm
from app.ui.screens.sheets import EditQuestion
from app.ui.screens.turn_flow import TurnFlow
from app.ui.screens.typed_text import asked_at, is_typed_since
from app.ui.screens.versions import VersionsScreen
from app.ui.widgets.entry import Entry
from app.ui.widgets.turn import AnswerTurn, TurnWidget
from engine.errors import MoeChatError

if TYPE_CHECKING:
    from app.ui.screens.chat import ChatScreen


class TurnActions:
    """Asks the user what has to be asked, takes the step, and says what stands in its way."""

    def __init__(self, chat: ChatScreen) -> None:
        self._chat = chat
        self.steps = TurnFlow(chat.flow)

    @property
    def focused(self) -> TurnWidget | None:
        """The turn that has the focus."""
        return self._chat.focused if isinstance(self._chat.focused, TurnWidget) else None

    @property
    def current(self) -> Exchange | None:
        """What actions are about."""
        if self.focused is not None:
            return self.focused.exchange
        exchanges = self._chat.flow.conversation.exchanges
        return exchanges[-1] if exchanges else None

    def _meant(self) -> Exchange | None:
        """What an action is about; None, and said, where there is nothing."""
        if self.current is None:
            self._chat.notify("There is no turn yet.")
        return self.current

    # Between turns

    async def focus(self, position: int) -> None:
        """The focus to the turn at a position, if it is there."""
        entry = self._chat.transcript.entry_at(position)
        if entry is not None:
            await self._focus_on(entry)

    async def _focus_on(self, entry: Entry) -> None:
        """The focus to a turn once it is on screen, unless something was typed meanwhile."""
        pressed_at = asked_at(self._chat.app)
        await self._chat.transcript.reveal(entry)
        if isinstance(entry.widget, Widget) and not is_typed_since(self._chat.app, pressed_at):
            self._chat.set_focus(entry.widget, scroll_visible=False)

    async def action_to_turn(self, step: int) -> None:
        """Focus the turn before or after; behind the last one is the prompt."""
        entries = [entry for entry in self._chat.transcript.entries if entry.exchange is not None]
        here = next((at for at, entry in enumerate(entries) if entry.widget is self._chat.focused), len(entries))
        there = here + step
        if there >= len(entries):
            await self.action_to_bottom()
        elif there >= 0:
            await self._focus_on(entries[there])

    async def action_to_top(self) -> None:
        """The beginning of the chat."""
        await self._chat.transcript.to_start()

    async def action_to_bottom(self) -> None:
        """Follow the answer again."""
        await self._chat.transcript.to_end()
        self._chat.focus_prompt()

    # On a turn

    async def action_regenerate(self) -> None:
        """Answer a question again; the earlier answer is kept as a version."""
        await self._do(self.steps.regenerate)

    async def action_continue_turn(self) -> None:
        """Go on with an answer that was stopped or cut."""
        await self._do(self.steps.go_on)

    async def action_branch_turn(self) -> None:
        """Go on from a turn in a chat of its own."""
        await self._do(self.steps.branch, "A branch: what follows is a chat of its own; the other is kept.")

    def action_edit_turn(self) -> None:
        """Ask a question differently."""
        if (exchange := self._meant()) is None:
            return

        async def ask(text: str | None) -> None:
            if text is not None and text != exchange.question.text:
                problem = await self.steps.ask_differently(exchange, text)
                if problem:
                    self._chat.say(problem)
                    self._chat.prompt.give_back(text)
                self._chat.focus_prompt()

        self._chat.app.push_screen(EditQuestion(exchange.question.text, self._chat.prompt.remember), ask)

    def action_delete_turn(self) -> None:
        """Delete a question and its answer, once confirmed."""
        if (exchange := self._meant()) is None:
            return

        async def delete(is_meant: bool | None) -> None:
            if is_meant:
                problem = await self.steps.delete(exchange)
                self._chat.say(problem or f"Deleted; /undo restores it, for {BIN_DAYS} days.")
                self._chat.focus_prompt()

        first_line = exchange.question.text.strip().partition("\n")[0][:200]
        self._chat.app.push_screen(Confirm("Delete this question and its answer?", f"“{first_line}”"), delete)

    async def action_undo_delete(self) -> None:
        """Restore what was deleted last in this chat, or the chat that was deleted last."""
        try:
            restored = await self._chat.sync.undo()
        except MoeChatError as error:
            self._chat.notify(error.in_full, severity="warning", markup=False)
            return
        where = "" if self._chat.flow.conversation.chat_id in restored.chat_ids else f": {self._place_of(restored)}"
        self._chat.notify(f"Restored “{restored.deletion.title}”{where}.", timeout=6, markup=False)

    def _place_of(self, restored: Restored) -> str:
        if restored.deletion.is_chat:
            return f"{key_for(self._chat, 'app.chats')} lists it"
        return f"its place was taken, so it is a version of its own; {key_for(self._chat, 'chat.versions')} lists them"

    async def action_change_context(self) -> None:
        """Have a question and its answer in the context of later ones, or not."""
        if (exchange := self._meant()) is None:
            return
        problem = await self.steps.change_context(exchange)
        now = "in the context" if exchange.is_in_context else "not in the context"
        self._chat.say(problem or f"This turn is {now} of what follows.")

    def action_show_versions(self) -> None:
        """The versions of this chat, as a tree."""
        chat_id = self._chat.flow.conversation.chat_id
        try:
            rows = version_rows(self._chat.flow.recorder.versions(chat_id))
        except MoeChatError as error:
            self._chat.notify(error.in_full, severity="error", markup=False)
            return
        if len(rows) < 2:
            again, edit_key = key_for(self._chat, "chat.regenerate"), key_for(self._chat, "turn.edit")
            self._chat.say(f"This chat has one version. {again} regenerates, {edit_key} edits a question.")
            return

        async def go(chosen: str | None) -> None:
            if chosen is not None and chosen != self._chat.flow.conversation.chat_id:
                await self._chat.open_chat(chosen)

        self._chat.app.push_screen(VersionsScreen(rows, chat_id), go)

    async def action_version(self, step: int) -> None:
        """The next or previous version of the turn that has the focus."""
        turn = self.focused
        if turn is None:
            return
        is_answer = isinstance(turn, AnswerTurn)
        chat_id = self.steps.other_version(turn.exchange, step, of_answer=is_answer)
        if chat_id is not None:
            position = turn.exchange.positions.start
            await self._chat.open_chat(chat_id)
            await self.focus(position + is_answer)

    def action_fold_turn(self) -> None:
        """Show or fold what is long."""
        if self.focused is not None:
            self.focused.toggle_fold()

    def action_toggle_thinking(self) -> None:
        """Open or fold what the model thought, everywhere."""
        self._chat.transcript.show_all_thinking(not self._chat.transcript.shows_thinking)

    async def _do(self, step: Callable[[Exchange], Awaitable[str]], done: str = "") -> None:
        if (exchange := self._meant()) is None:
            return
        problem = await step(exchange)
        self._chat.say(problem or done)
        if not problem:
            self._chat.focus_prompt()
