"""`moe-chat ask`: one question, no screen. The answer goes to standard output, everything else to standard error.

With --json, one object a line. Each has `event`; the other keys are, by event:
    chat      chat_id, is_saved (the question is kept before anything else happens; where that fails it is tried again)
    loading   stage, done, total, unit
    ready     model, moe_layers, experts, top_k, context_tok, thinking_choices, effective, notices, load_s
    domain    domain, num_warmed, expected_hit_rate (num_warmed is null without a profile)
    prefill   done_tok, total_tok, reused_tok, left_out_messages, note
    thinking  text, num_tok (what the model thinks before it answers)
    text      text, num_tok (tokens so far, thinking included)
    mode      mode, at_tok
    notice    message, hint (something to know; nothing failed)
    end       reason, label, text, thinking, stats (every counter of the answer)
    error     title, message, hint, kind (`not_saved`: the answer was written here and is not kept)
"""

from __future__ import annotations

import argparse
import os
import stat
import sys
from dataclasses import replace

from app.chat.attachments import Question, question_of
from app.chat.conversation import Conversation
from app.cli.answer import HeadlessAnswers, thinking_choice
from app.cli.arguments.chats import LAST
from app.cli.chat_preset import choose, new_conversation, starting_mode, starting_preset, wanted_thinking
from app.cli.commands.chats import ChatNotFoundError, chat_id_of
from app.cli.engine_run import Interrupt, counted_as_running, running_engine
from app.cli.output.screen import HeadlessScreen
from app.cli.saving import saving
from app.cli.usage import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, UsageError
from app.domains.domain import domain_named
from app.formatting.sanitise import text_of, whole
from app.settings.presets import usable
from app.settings.settings import Settings
from app.storage import answer_record
from app.storage.paths import AppPaths
from app.storage.recorder import Recorder
from app.storage.store import ChatStore
from app.storage.unkept_recorder import UnkeptRecorder
from engine.events import CANCELLED, ERROR, TurnEnded


def ask(arguments: argparse.Namespace) -> int:
    """Run `moe-chat ask`; returns the exit code. Raises MoeChatError."""
    settings = Settings.of(arguments)
    screen = HeadlessScreen(is_json=arguments.json, shows_thinking=arguments.show_thinking)
    for problem in settings.problems:
        screen.note(problem)
    asked = asked_question(arguments.question)
    store = ChatStore(AppPaths.from_environment().chats_db)
    recorder_type, interrupt = UnkeptRecorder if arguments.no_save else Recorder, Interrupt()
    recorder = recorder_type(store, screen.note)
    with counted_as_running(screen), saving(recorder, screen):
        conversation = conversation_for(arguments, settings, store, recorder)
        ended, top_k = _answer(arguments, settings, conversation, asked, screen, interrupt)
        if ended is not None and arguments.stats:
            screen.stats(answer_record.stats_lines(ended.stats, ended.reason, top_k))
    if ended is None or ended.reason == CANCELLED or interrupt.since is not None:
        return EXIT_INTERRUPTED
    return EXIT_FAILED if ended.reason == ERROR else EXIT_OK


def _answer(
    arguments: argparse.Namespace,
    settings: Settings,
    conversation: Conversation,
    asked: Question,
    screen: HeadlessScreen,
    interrupt: Interrupt,
) -> tuple[TurnEnded | None, int]:
    """How the answer ended, and the model's top_k. The question is kept before anything is started."""
    config = replace(settings.engine_config(), domain=conversation.chat.domain, mode=starting_mode(settings))
    exchange = conversation.ask(*asked)
    is_saved = not arguments.no_save and conversation.is_saved
    screen.json({"event": "chat", "chat_id": conversation.chat_id, "is_saved": is_saved})
    with running_engine(config, screen) as (link, ready):
        conversation.set_model(ready.model_name)
        answers = HeadlessAnswers(link, ready, screen, settings, config.mode, config.strategy)
        tell = None if settings.typed("chat.thinking") else screen.note
        conversation.thinking = thinking_choice(wanted_thinking(conversation, settings), ready, tell)
        return answers.give(conversation, exchange, interrupt), ready.top_k


def conversation_for(
    arguments: argparse.Namespace, settings: Settings, store: ChatStore, recorder: Recorder
) -> Conversation:
    """The chat to go on with, or a new one. Raises ChatNotFoundError, UsageError and StoreError."""
    name = arguments.chat or (LAST if arguments.goes_on else "")
    if not name:
        domain = domain_named(settings.text("chat.domain"))
        return new_conversation(domain, settings.engine_config().model, recorder, settings)
    if settings.typed("chat.domain") is not None:
        raise UsageError("A chat keeps its domain: --domain contradicts --continue and --chat.", "Leave one out.")
    kept = recorder.load(chat_id_of(store, name))
    if kept is None:
        raise ChatNotFoundError("The chat was deleted meanwhile.")
    conversation = Conversation(kept[0], recorder, settings.sampling(usable(kept[0].preset)), kept[1])
    if settings.typed("chat.preset") is not None:
        choose(conversation, starting_preset(settings), settings)
    if (system := settings.typed("chat.system_prompt")) is not None:
        conversation.set_system_prompt(system)
    return conversation


def asked_question(words: list[str]) -> Question:
    """The question with the files that its words name, and with what is piped in as its context. Raises UsageError
    when there is neither, and AttachmentError."""
    question, context = whole(" ".join(words)).strip(), _piped_text().strip()
    if not question and not context:
        raise UsageError("There is no question.", 'Write it like moe-chat ask "What is the capital of France?"')
    return question_of("\n\n".join(part for part in (context, question) if part), named_in=question)


def _piped_text() -> str:
    """Standard input when it is a pipe or a file."""
    if sys.stdin is None or sys.stdin.closed:
        return ""
    try:
        kind = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return ""
    if not (stat.S_ISFIFO(kind) or stat.S_ISREG(kind)):
        return ""
    return text_of(sys.stdin.buffer.read())
