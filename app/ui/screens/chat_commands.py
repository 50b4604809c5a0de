"""Slash commands: completed while they are typed, and carried out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from textual import on
from textual.widgets import Input, TextArea

from app.chat import commands
from app.chat.conversation import Conversation
from app.domains.domain import all_domains
from app.storage import answer_record, export
from app.ui.key_map import key_for
from app.ui.screens.chat_actions import ChatActions
from app.ui.screens.chat_choices import TextSheet
from app.ui.widgets.command_list import CommandList
from app.ui.widgets.find_bar import FindBar
from app.ui.widgets.prompt import Prompt
from engine.config import APPROX, EXACT
from engine.errors import MoeChatError

_COPIES = (
    ("answer", "the last answer"),
    ("code", "the last block of code"),
    ("question", "the last question"),
    ("chat", "the whole chat, as Markdown"),
)


class ChatCommands(ChatActions):
    """What is typed into the prompt: messages and commands."""

    async def on_prompt_submitted(self, message: Prompt.Submitted) -> None:
        command, argument, text, problem = commands.read(message.text)
        if problem:
            self.notify(problem, severity="warning", timeout=6, markup=False)
            self.query_one(Prompt).give_back(message.text)
            return
        self.query_one(Prompt).remember(message.text)
        if command is None:
            await self.ask(text)
        elif command.action and not argument:
            await self.run_action(command.action)
        else:
            carry_out: Callable[[str], Awaitable[None]] = getattr(self, f"command_{command.name}")
            await carry_out(argument)

    # Completion

    @on(TextArea.Changed, "#prompt")
    def offer_completions(self, event: TextArea.Changed) -> None:
        """Open the list while a command is typed."""
        text = event.text_area.text
        offered = commands.completions(text, self._choices()) if text.startswith("/") else []
        is_whole = len(offered) == 1 and offered[0].text == text
        self.query_one(CommandList).show([] if is_whole else offered)
        self.query_one(Prompt).has_command_list = bool(offered) and not is_whole

    def on_prompt_command_list_key(self, message: Prompt.CommandListKey) -> None:
        offered = self.query_one(CommandList)
        if message.key in ("up", "down"):
            offered.move(1 if message.key == "down" else -1)
        elif offered.chosen is not None:
            self._take(offered.chosen, is_sent=message.key == "enter")

    def on_command_list_chosen(self, message: CommandList.Chosen) -> None:
        self._take(message.completion, is_sent=False)
        self.query_one(Prompt).focus()

    def _take(self, chosen: commands.Completion, *, is_sent: bool) -> None:
        """Complete the line; send it where that is what was meant and nothing has to follow."""
        prompt = self.query_one(Prompt)
        command = commands.read(chosen.text).command
        more = command is not None and bool(command.argument) and " " not in chosen.text
        if is_sent and command is not None:
            prompt.set_text(chosen.text)
            prompt.submit()
        else:
            prompt.set_text(chosen.text + (" " if more else ""))

    def _choices(self) -> dict[str, tuple[tuple[str, str], ...]]:
        ready = self.flow.bridge.ready
        thinking: tuple[tuple[str, str], ...] = (("show", "open it everywhere"), ("fold", "fold it everywhere"))
        if ready is not None and ready.thinking_choices:
            thinking += (("default", "as the model's template has it"),)
            thinking += tuple((choice, "from the next question on") for choice in ready.thinking_choices)
        return {
            "domains": tuple((domain.name, domain.purpose) for domain in all_domains()),
            "modes": ((EXACT, "what the whole model would give"), (APPROX, "stand-ins for missing experts")),
            "copies": _COPIES,
            "thinking": thinking,
            "formats": (("markdown", "to read"), ("json", "to keep, and to import again")),
        }

    # Commands that take something

    async def command_title(self, title: str) -> None:
        """Call the chat something."""
        self.flow.recorder.rename(self.flow.conversation.chat_id, title)
        self.notify(f"Renamed to “{title}”.", markup=False)

    async def command_system(self, text: str) -> None:
        """Show or set what the model is told first."""
        conversation = self.flow.conversation
        if text:
            conversation.set_system_prompt(text)
            self.notify("The system prompt changes from the next question on.")
        else:
            shown = conversation.chat.system_prompt or "Nothing: the model's own default holds."
            self.app.push_screen(TextSheet("System prompt", [shown]))

    async def command_domain(self, name: str) -> None:
        """Begin a chat in a domain."""
        known = {domain.name: domain.name for domain in all_domains()}
        known |= {domain.title.lower(): domain.name for domain in all_domains()}
        known |= {own: own for own in self.flow.bridge.profiles.names()}
        wanted = known.get(name) or known.get(name.lower())
        if wanted is None:
            words = f"There is no domain {name}; {key_for(self, 'app.domain')} lists them."
            self.notify(words, severity="warning", markup=False)
        else:
            await self.run_action(f"app.begin_domain({wanted!r})")

    async def command_mode(self, mode: str) -> None:
        """Exact or approximate."""
        if mode not in (EXACT, APPROX):
            self.notify(f"The mode is {EXACT} or {APPROX}.", severity="warning")
        else:
            await self.run_action(f"ask_mode({mode!r})")

    async def command_thinking(self, choice: str) -> None:
        """Whether or how much the model thinks, or whether that is shown."""
        ready = self.flow.bridge.ready
        known = ready.thinking_choices if ready is not None else ()
        if choice in ("show", "fold"):
            self.transcript.show_all_thinking(choice == "show")
        elif choice == "default" or choice in known:
            self.flow.conversation.thinking = choice
            self.notify(f"Thinking: {choice}, from the next question on.", markup=False)
        else:
            words = f"It can be: {', '.join(known)}." if known else "This model's template has no such switch."
            self.notify(words, severity="warning", markup=False)

    async def command_copy(self, what: str) -> None:
        """Copy a part of the chat."""
        if what == "code":
            await self.action_copy_code()
        elif what == "chat":
            await self.copy(export.as_markdown(kept(self.flow.conversation)))
        elif what in ("answer", "question"):
            exchange = self.current
            answer = exchange.answer if exchange is not None else None
            asked, written = exchange.question.text if exchange is not None else "", answer.text if answer else ""
            await self.copy(asked if what == "question" else written.strip("\n"))
        else:
            words = ", ".join(value for value, _ in _COPIES)
            self.notify(f"What can be copied: {words}.", severity="warning")

    async def command_find(self, text: str) -> None:
        """Find text."""
        self.query_one(FindBar).open(text)

    async def command_open(self, words: str) -> None:
        """The list of chats, searched."""
        await self.run_action("app.chats")
        opened = self.app.screen
        opened.call_after_refresh(lambda: setattr(opened.query_one(Input), "value", words))

    async def command_export(self, what: str) -> None:
        """Write the chat to a file."""
        kind, _, name = what.partition(" ")
        if kind not in ("markdown", "json"):
            kind, name = ("json" if what.endswith(".json") else "markdown"), what
        chat = kept(self.flow.conversation)
        is_json = kind == "json"
        path = Path(name.strip() or export.file_name(chat, ".json" if is_json else ".md")).expanduser()
        try:
            others = [export.KeptChat(*kept) for kept in self.flow.recorder.versions(chat.chat_id)] if is_json else []
            chats = [chat, *(other for other in others if other.chat_id != chat.chat_id)]
            written = export.write_file(path, export.as_json(chats) if is_json else export.as_markdown(chat))
        except MoeChatError as error:
            self.notify(f"{error.message} {error.hint}".strip(), severity="error", markup=False)
        else:
            self.notify(f"Saved to {written}", timeout=6, markup=False)

    async def command_stats(self, _: str) -> None:
        """Everything that was counted for the current answer."""
        answer = self.current.answer if self.current is not None else None
        lines = answer_record.kept_lines(answer.stats) if answer is not None else []
        self.app.push_screen(TextSheet("Statistics of the answer", lines or ["No statistics yet."]))


def kept(conversation: Conversation) -> export.KeptChat:
    """A conversation as it is, to be written to a file."""
    turns = [turn for exchange in conversation.exchanges for turn in (exchange.question, exchange.answer)]
    return export.KeptChat(conversation.chat, [turn for turn in turns if turn is not None])
