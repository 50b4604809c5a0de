"""What is typed into the prompt: messages, slash commands with their completion, and texts of the user's own editor."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from textual.app import SuspendNotSupported
from textual.widgets import Input

from app.chat.attachments import AttachmentError
from app.chat.conversation import Conversation
from app.chat.external_editor import edit
from app.commands import typed
from app.commands.path_words import path_completions
from app.domains.domain import all_domains
from app.formatting.sanitise import visible
from app.settings import preset_command
from app.storage import answer_record, export
from app.ui.key_map import key_for
from app.ui.screens.sheets import TextSheet
from app.ui.widgets.command_list import CommandList
from app.ui.widgets.find_bar import FindBar
from engine.config import APPROX, EXACT, STRATEGIES, strategy_named
from engine.errors import MoeChatError

if TYPE_CHECKING:
    from app.ui.screens.chat import ChatScreen

_EDITOR = "editor"

_COPIES = (
    ("answer", "the last answer"),
    ("code", "the last block of code; with a number, that one"),
    ("question", "the last question"),
    ("chat", "the whole chat, as Markdown"),
)


class PromptActions:
    """Sends messages and carries out slash commands: what is typed behind one is taken by `command_<name>`."""

    def __init__(self, chat: ChatScreen) -> None:
        self._chat = chat

    async def submit(self, written: str, shown: str) -> None:
        """Send a message, or carry out a command. Files are looked for in what was shown: not in long pasted texts."""
        command, argument, text, problem = typed.read(written)
        if problem:
            self._chat.notify(problem, severity="warning", timeout=6, markup=False)
            self._chat.prompt.give_back(written)
            return
        self._chat.prompt.remember(written)
        if command is None:
            await self.ask(text, shown)
        elif not argument:
            await self._chat.run_action(command.action)
        else:
            await self._carry_out(command.name, argument)

    async def ask(self, text: str, shown: str) -> None:
        """Ask a question with the files that it names where it is `shown`. It is given back where one cannot be sent,
        and where the user has to see first what another moe-chat has just written in this chat."""
        problem = "Your question is in the prompt: read what is new, then send it."
        if not await self._chat.look_elsewhere():
            try:
                await self._chat.flow.ask(*await self._chat.attaching.read(text, shown))
                return
            except AttachmentError as error:
                problem = error.in_full
        self._chat.prompt.give_back(text)
        self._chat.notify(problem, severity="warning", timeout=8, markup=False)

    async def action_command(self, name: str) -> None:
        """A slash command without a key, chosen in the palette: typed for the user where something has to follow."""
        if typed.read(f"/{name}").command is None:
            self._chat.prompt.set_text(f"/{name} ")
            self._chat.focus_prompt()
        else:
            await self._carry_out(name, "")

    async def _carry_out(self, name: str, argument: str) -> None:
        carry_out: Callable[[str], Awaitable[None]] = getattr(self, f"command_{name}")
        await carry_out(argument)

    def action_edit_externally(self) -> None:
        """Write the message in the user's own editor; what the engine writes meanwhile is kept."""
        if not any(worker.group == _EDITOR for worker in self._chat.workers):
            self._chat.run_worker(self._edit_externally(), group=_EDITOR)

    async def _edit_externally(self) -> None:
        prompt = self._chat.prompt
        try:
            with self._chat.app.batch_update(), self._chat.app.suspend():  # nothing is drawn meanwhile
                text = await asyncio.to_thread(edit, prompt.whole_text)
        except MoeChatError as error:
            self._chat.notify(error.in_full, severity="error", markup=False)
        except SuspendNotSupported:
            self._chat.notify("This terminal cannot be handed to an editor.", severity="error")
        else:
            prompt.set_text(text)
            self._chat.focus_prompt()

    # Completion

    def offer_completions(self, text: str) -> None:
        """Open the list while a command or the name of a file is typed."""
        is_command = text.startswith("/") and not text.startswith("//")
        if is_command:
            offered = typed.completions(text, self._choices())
        else:
            offered = path_completions(self._chat.prompt.text_before_cursor)
        self._chat.attaching.look("" if is_command else text)
        is_whole = len(offered) == 1 and self._is_typed(offered[0], text)
        self._chat.query_one(CommandList).show([] if is_whole else offered)
        self._chat.prompt.has_command_list = bool(offered) and not is_whole

    def _is_typed(self, offered: typed.Completion, text: str) -> bool:
        """What is offered stands there already."""
        before = self._chat.prompt.text_before_cursor if offered.replaces else text
        return before[-offered.replaces :] == offered.text if offered.replaces else before == offered.text

    def steer(self, key: str) -> None:
        """A key of the prompt while the list is open."""
        offered = self._chat.query_one(CommandList)
        if key in ("up", "down"):
            offered.move(1 if key == "down" else -1)
        elif offered.chosen is not None:
            self.take(offered.chosen, is_sent=key == "enter")

    def take(self, chosen: typed.Completion, *, is_sent: bool) -> None:
        """Complete the line; send it where that is what was meant and nothing has to follow."""
        prompt = self._chat.prompt
        if chosen.replaces:
            prompt.replace_before_cursor(chosen.replaces, chosen.text + ("" if chosen.text.endswith("/") else " "))
            return
        command = typed.read(chosen.text).command
        more = command is not None and bool(command.argument) and " " not in chosen.text
        if is_sent and command is not None:
            prompt.set_text(chosen.text)
            prompt.submit()
        else:
            prompt.set_text(chosen.text + (" " if more else ""))

    def _choices(self) -> dict[str, tuple[tuple[str, str], ...]]:
        ready = self._chat.flow.bridge.ready
        thinking: tuple[tuple[str, str], ...] = (("show", "open it everywhere"), ("fold", "fold it everywhere"))
        if ready is not None and ready.thinking_choices:
            thinking += (("default", "as the model's template has it"),)
            thinking += tuple((choice, "from the next question on") for choice in ready.thinking_choices)
        return {
            "domains": tuple((domain.name, domain.purpose) for domain in all_domains()),
            "modes": ((EXACT, "what the whole model would give"), (APPROX, "a missed expert may be replaced")),
            "strategies": tuple((name, strategy_named(name).meaning) for name in STRATEGIES),
            "copies": _COPIES,
            "thinking": thinking,
            "presets": preset_command.choices(self._chat.preset_actions.presets),
            "formats": (("markdown", "to read"), ("json", "to keep, and to import again")),
        }

    # Commands that take something

    async def command_title(self, title: str) -> None:
        """Call the chat something."""
        self._chat.flow.recorder.rename(self._chat.flow.conversation.chat_id, title)
        self._chat.notify(f"Renamed to “{title}”.", markup=False)

    async def command_system(self, text: str) -> None:
        """Show or set what the model is told first."""
        conversation = self._chat.flow.conversation
        if text:
            conversation.set_system_prompt(text)
            self._chat.notify("The system prompt holds from the next question on.")
        else:
            shown = conversation.chat.system_prompt or "No system prompt: the model's own default holds."
            self._chat.app.push_screen(TextSheet("System prompt", [shown]))

    async def command_domain(self, name: str) -> None:
        """Begin a chat in a domain."""
        known = {domain.name: domain.name for domain in all_domains()}
        known |= {domain.title.lower(): domain.name for domain in all_domains()}
        known |= {own: own for own in self._chat.flow.bridge.profiles.names()}
        wanted = known.get(name) or known.get(name.lower())
        if wanted is None:
            words = f"There is no domain {name}; {key_for(self._chat, 'app.domain')} lists them."
            self._chat.notify(words, severity="warning", markup=False)
        else:
            await self._chat.run_action(f"app.begin_domain({wanted!r})")

    command_new = command_domain

    async def command_mode(self, mode: str) -> None:
        """Exact or approximate."""
        if mode not in (EXACT, APPROX):
            self._chat.notify(f"The mode is {EXACT} or {APPROX}.", severity="warning")
        else:
            await self._chat.run_action(f"ask_mode({mode!r})")

    async def command_strategy(self, name: str) -> None:
        """Show or choose how experts are loaded and kept."""
        bridge = self._chat.flow.bridge
        if name and name not in STRATEGIES:
            words = f"There is no strategy {name!r}. There are: {', '.join(STRATEGIES)}."
            self._chat.notify(visible(words), severity="warning", markup=False)
            return
        if name:
            bridge.ask_strategy(name)
        self._chat.status.show_title()
        shown = bridge.config.strategy
        self._chat.notify(f"The strategy is {shown}: {strategy_named(shown).meaning}.", markup=False)

    async def command_thinking(self, choice: str) -> None:
        """Whether or how much the model thinks, or whether that is shown."""
        ready = self._chat.flow.bridge.ready
        known = ready.thinking_choices if ready is not None else ()
        if choice in ("show", "fold"):
            self._chat.transcript.show_all_thinking(choice == "show")
        elif choice == "default" or choice in known:
            self._chat.flow.conversation.thinking = choice
            self._chat.notify(f"Thinking: {choice}, from the next question on.", markup=False)
        else:
            words = (
                f"Thinking can be: {', '.join(known)}."
                if known
                else "This model's template has no choices of thinking."
            )
            self._chat.notify(words, severity="warning", markup=False)

    async def command_copy(self, what: str) -> None:
        """Copy a part of the chat."""
        name, _, number = what.partition(" ")
        if name == "code":
            await self._chat.copying.copy_code(number.strip())
        elif what == "chat":
            await self._chat.copying.copy(export.as_markdown(kept(self._chat.flow.conversation)))
        elif what in ("answer", "question"):
            exchange = self._chat.turn_actions.current
            answer = exchange.answer if exchange is not None else None
            asked, written = exchange.question.text if exchange is not None else "", answer.text if answer else ""
            await self._chat.copying.copy(asked if what == "question" else written.strip("\n"))
        else:
            words = ", ".join(value for value, _ in _COPIES)
            self._chat.notify(f"What can be copied: {words}.", severity="warning")

    async def command_preset(self, asked: str) -> None:
        """Choose, save, rename, delete or restore a preset."""
        self._chat.preset_actions.carry_out(asked)

    async def command_save(self, asked: str) -> None:
        """Write a block of code to a file."""
        self._chat.copying.save_code(asked)

    async def command_find(self, text: str) -> None:
        """Find text."""
        self._chat.query_one(FindBar).open(text)

    async def command_open(self, words: str) -> None:
        """The list of chats, searched."""
        await self._chat.run_action("app.chats")
        opened = self._chat.app.screen
        opened.call_after_refresh(lambda: setattr(opened.query_one(Input), "value", words))

    command_chats = command_open

    async def command_export(self, what: str) -> None:
        """Write the chat to a file."""
        chat, recorder = kept(self._chat.flow.conversation), self._chat.flow.recorder
        try:
            written = export.write_as_asked(chat, partial(recorder.versions, chat.chat_id), what)
        except MoeChatError as error:
            self._chat.notify(error.in_full, severity="error", markup=False)
        else:
            self._chat.notify(f"Saved to {written}", timeout=6, markup=False)

    async def command_stats(self, _: str) -> None:
        """Everything that was counted for the current answer."""
        answer = self._chat.turn_actions.current.answer if self._chat.turn_actions.current is not None else None
        lines = answer_record.kept_lines(answer.stats) if answer is not None else []
        self._chat.app.push_screen(TextSheet("Statistics of the answer", lines or ["Nothing has been counted yet."]))


def kept(conversation: Conversation) -> export.KeptChat:
    """A conversation as it is, to be written to a file."""
    return export.KeptChat(conversation.chat, [turn for exchange in conversation.exchanges for turn in exchange.turns])
