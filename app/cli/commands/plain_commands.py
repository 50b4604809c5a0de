"""The commands of the plain chat, and the chat they act on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from app.chat import code_blocks
from app.chat.attachments import question_of
from app.chat.conversation import Conversation
from app.chat.exchange import Exchange
from app.chat.sync import take_over
from app.cli import chat_preset
from app.cli.answer import HeadlessAnswers, thinking_choice
from app.cli.commands.chats import chat_id_of
from app.cli.engine_run import PATIENT_WAIT_S, Interrupt
from app.cli.output.screen import HeadlessScreen
from app.cli.output.terminal_text import say
from app.commands.table import Command
from app.commands.typed import slash_commands
from app.domains.domain import Domain, all_domains, domain_named
from app.formatting import markdown
from app.settings import preset_command, presets
from app.settings.presets import Preset
from app.settings.settings import Settings
from app.storage import answer_record, export
from app.storage.recorder import Recorder
from app.storage.records import SHORT_ID
from app.storage.store import ChatStore
from app.storage.words import grouped_versions
from engine.config import APPROX, EXACT, strategy_named
from engine.errors import ConfigError

_NUM_LISTED = 20


class PlainChat:
    """The running chat and its commands. Its methods raise MoeChatError."""

    def __init__(
        self,
        store: ChatStore,
        recorder: Recorder,
        screen: HeadlessScreen,
        settings: Settings,
        answers: HeadlessAnswers,
        domain: Domain,
    ) -> None:
        self.is_over = False
        self._store = store
        self._recorder = recorder
        self._screen = screen
        self._settings = settings
        self._answers = answers
        self._domain = domain
        self._stats: list[str] = []
        self._conversation = self._begun()
        self._choose_thinking(chat_preset.wanted_thinking(self._conversation, settings), screen.note)

    def ask(self, text: str) -> None:
        """Ask a question with the files that it names, and print the answer; ctrl+c stops it."""
        self._answer(self._conversation.ask(*question_of(text)))

    def command_help(self, _: str) -> None:
        """List the commands."""
        rows = [(f"/{command.name} {command.takes}", command.meaning) for command in slash_commands(on_screen=False)]
        width = max(len(written) for written, _ in rows)
        for written, meaning in rows:
            say(f"{written:<{width}}  {meaning}")

    def command_new(self, name: str) -> None:
        """Begin another chat, in this domain or another."""
        if name:
            self._domain = domain_named(name)
            self._answers.set_domain(name)
        self._enter(self._begun())
        say(f"A new chat, {self._domain.title}.")

    def command_domain(self, name: str) -> None:
        """Begin another chat in a domain, or print what a chat can be about."""
        if name:
            self.command_new(name)
        else:
            for domain in all_domains():
                say(f"{domain.name:<14}{domain.purpose}")

    def command_system(self, text: str) -> None:
        """Print or set the system prompt."""
        if text:
            self._conversation.set_system_prompt(text)
        say(self._conversation.chat.system_prompt or "There is no system prompt.")

    def command_preset(self, asked: str) -> None:
        """List presets, or choose, save, rename, delete or restore one."""
        known = chat_preset.known_presets()
        if not asked:
            for name, meaning in preset_command.choices(known):
                say(f"{name:<14}{meaning}")
            return
        outcome = preset_command.carry_out(known, asked, self._current_preset)
        if outcome.chosen is not None or outcome.drops:
            chat_preset.choose(self._conversation, outcome.chosen, self._settings)
        say(outcome.said)
        if outcome.chosen is not None:
            self._choose_thinking(str(outcome.chosen.values.get(presets.THINKING, "")), self._screen.note)
            if (mode := outcome.chosen.values.get(presets.MODE)) is not None:
                self.command_mode(str(mode))

    def _current_preset(self, name: str) -> Preset:
        chat = self._conversation.chat
        return presets.of_chat(name, self._settings.value, chat.system_prompt, presets.usable(chat.preset))

    def command_mode(self, name: str) -> None:
        """Print or set the mode."""
        if name and name not in (EXACT, APPROX):
            raise ConfigError(f"Unknown mode {name!r}.", f"Choose {EXACT} or {APPROX}.")
        if name:
            self._answers.set_mode(name)
        say(f"The mode is {name or self._answers.mode}.")

    def command_strategy(self, name: str) -> None:
        """Print or set how experts are loaded and kept."""
        if name:
            self._answers.set_strategy(name)
        shown = self._answers.strategy
        say(f"The strategy is {shown}: {strategy_named(shown).meaning}.")

    def command_thinking(self, choice: str) -> None:
        """Set whether, or how hard, the model thinks first."""
        self._choose_thinking(choice, None)
        known = ", ".join(self._answers.ready.thinking_choices)
        chosen = self._conversation.thinking or "the model's own"
        say(f"Thinking: {chosen}. {f'Choices: {known}.' if known else 'This model has no choices of thinking.'}")

    def command_regenerate(self, _: str) -> None:
        """Answer the last question again; the earlier answer stays in an earlier version of the chat."""
        last = self._last()
        recomputes = last.is_on_approximate_context and self._answers.mode == EXACT
        if last.answer is not None and (last.answer.text or last.answer.thinking):
            self._conversation = self._conversation.branch(len(self._conversation.exchanges) - 1, with_question=True)
            last = self._last()
        self._conversation.again(last, recomputes=recomputes)
        self._answer(last)

    def command_continue(self, _: str) -> None:
        """Continue the last answer where it was stopped or cut."""
        last = self._last()
        if not last.can_resume:
            raise ConfigError("The last answer is complete.", "Ask for more in a message.")
        self._conversation.resume(last)
        self._answer(last)

    def command_delete(self, _: str) -> None:
        """Delete the last question and its answer."""
        last = self._last()
        self._conversation.delete(last)
        say(f"Deleted: {last.question.text.splitlines()[0] if last.question.text else ''} /undo restores it.")

    def command_undo(self, _: str) -> None:
        """Restore what was deleted last: in this chat, or a chat."""
        chat_id = self._conversation.chat_id
        restored = self._recorder.undo(chat_id)
        if chat_id in restored.chat_ids:
            take_over(self._conversation.exchanges, self._recorder.turns_now(chat_id))
        say(f"Restored: {restored.deletion.title}")

    def command_chats(self, text: str) -> None:
        """List chats, or those in which a text is found."""
        if text:
            chats = list({hit.chat.chat_id: hit.chat for hit in self._store.search(text)}.values())
        else:
            chats = self._store.summaries(10 * _NUM_LISTED)
        for family in grouped_versions(chats)[:_NUM_LISTED]:
            say(f"{family.newest.chat_id[:SHORT_ID]}  {family.newest.title} · {family.about()}")
        if not chats:
            say("No matches." if text else "No chats yet.")

    def command_open(self, name: str) -> None:
        """Go on with a chat that was kept."""
        kept = self._recorder.load(chat_id_of(self._store, name))
        if kept is None:
            raise ConfigError("The chat was deleted meanwhile.")
        sampling = self._settings.sampling(presets.usable(kept[0].preset))
        self._enter(Conversation(kept[0], self._recorder, sampling, kept[1]))
        say(export.as_markdown(export.KeptChat(kept[0], kept[1])).rstrip())

    def command_title(self, text: str) -> None:
        """Call the chat something else."""
        self._recorder.rename(self._conversation.chat_id, text)

    def command_export(self, name: str) -> None:
        """Write the chat to a file."""
        kept = self._recorder.load(self._conversation.chat_id)
        if kept is None or not kept[1]:
            raise ConfigError("There is nothing to export yet.")
        chat = export.KeptChat(*kept)
        written = export.write_as_asked(chat, partial(self._recorder.versions, chat.chat_id), name)
        say(f"Saved to {written}")

    def command_save(self, asked: str) -> None:
        """Write a block of code of the last answer to a new file."""
        answer = self._last().answer
        block, name = code_blocks.read_save(markdown.code_blocks(answer.text if answer is not None else ""), asked)
        if not name:
            raise ConfigError("There is no name for the file.", "Write /save NUMBER FILE, or /save FILE.")
        say(f"Saved {code_blocks.about(block)}, to {code_blocks.save(block, name)}")

    def command_stats(self, _: str) -> None:
        """Print what the last answer cost."""
        for line in self._stats or ["There is no answer yet."]:
            say(line)

    def command_quit(self, _: str) -> None:
        """Leave."""
        self.is_over = True

    def _begun(self) -> Conversation:
        model = self._answers.ready.model_name
        return chat_preset.new_conversation(self._domain, model, self._recorder, self._settings)

    def _enter(self, conversation: Conversation) -> None:
        """Leave this chat for another; how the model thinks stays."""
        conversation.thinking = self._conversation.thinking
        if conversation.chat_id != self._conversation.chat_id:
            self._conversation.leave()
        self._conversation = conversation

    def _choose_thinking(self, choice: str, tell: Callable[[str], None] | None) -> None:
        if choice:
            self._conversation.thinking = thinking_choice(choice, self._answers.ready, tell)

    def _answer(self, exchange: Exchange) -> None:
        interrupt = Interrupt(wait_s=PATIENT_WAIT_S)
        with interrupt.installed():
            ended = self._answers.give(self._conversation, exchange, interrupt)
        if ended is not None:
            top_k = self._answers.ready.top_k
            self._stats = answer_record.stats_lines(ended.stats, ended.reason, top_k)
            self._screen.note(answer_record.summary(ended.stats, ended.reason, top_k))
            if exchange.is_on_approximate_context:
                self._screen.note("Under EXACT, /regenerate answers again and computes what came before exactly.")

    def _last(self) -> Exchange:
        if not self._conversation.exchanges:
            raise ConfigError("There is no answer yet.", "Ask something first.")
        return self._conversation.exchanges[-1]


def run_command(chat: PlainChat, command: Command, argument: str) -> None:
    """Carry out a slash command. Raises what the command raises."""
    carry_out: Callable[[str], None] = getattr(chat, f"command_{command.name}")
    carry_out(argument)
