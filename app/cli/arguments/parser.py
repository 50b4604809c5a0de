"""The whole command line, as a parser. Light: what a command does is imported when it runs."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from app.cli.arguments.chats import add_chats
from app.cli.arguments.shared import EXIT_CODES, SIGNAL_CODES, add_chat_options, add_command, add_task_options
from app.cli.arguments.tasks import add_tasks
from app.cli.output.terminal_text import say
from app.cli.usage import EXIT_USAGE

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

    from app.cli.arguments.shared import Commands

_CHAT = "chat"


class _ShowVersion(argparse.Action):
    """`--version`, which looks the version up only when asked."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            say(f"moe-chat {version('moe-chat')}")
        except PackageNotFoundError:
            say("moe-chat, not installed")
        parser.exit(0)


class _Commands(argparse._SubParsersAction):  # type: ignore[type-arg]
    """The commands. In place of one there may be a question for the chat: whatever has a space in it."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        given = [values] if isinstance(values, str) else list(values or [])
        command = [] if not given or given[0] in self.choices else [_CHAT]
        super().__call__(parser, namespace, [*command, *given], option_string)


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints, which quote what was typed, are made safe for the terminal."""

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if not isinstance(action, _Commands) or value in action.choices:
            super()._check_value(action, value)
        elif not any(character.isspace() for character in str(value)):
            near = difflib.get_close_matches(str(value), action.choices, 1, 0.6)
            hint = f" Did you mean {near[0]}?" if near else ""
            question = f"To ask it as a question: moe-chat {_CHAT} {value}"
            raise argparse.ArgumentError(action, f"there is no command {str(value)!r}.{hint} {question}")

    def error(self, message: str) -> NoReturn:
        """What is wrong in one line, and where the options are listed; the long usage would push it off the screen."""
        kinds = next((each for each in self._actions if isinstance(each, argparse._SubParsersAction)), None)
        if kinds is not None and "are required" in message:
            message = f"one of {', '.join(kinds.choices)} must follow"
        self.exit(EXIT_USAGE, f"{self.prog}: {message}\n{self.prog} --help lists what there is.\n")

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        is_output = file is sys.stdout
        if message:
            say(message, end="", stream=sys.stdout if is_output else sys.stderr)


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser: argparse.ArgumentParser = _Parser(
        prog="moe-chat",
        description="Chat with a Mixture-of-Experts model that is bigger than the memory it is given.",
        epilog="Without a command the chat opens. An option can also be given by the environment, such as"
        f" MOE_CHAT_MEMORY=6GiB, or kept in the settings. {EXIT_CODES}",
    )
    parser.add_argument("-V", "--version", action=_ShowVersion, nargs=0, help="print the version and exit")
    parser.add_argument(
        "--plain", action="store_true", help="chat line by line, without a full screen: for screen readers and pipes"
    )
    add_chat_options(parser)
    parser.add_argument("-c", "--continue", dest="goes_on", action="store_true", help="open the chat used last")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", action=_Commands)
    _add_chat(commands)
    _add_ask(commands)
    add_chats(commands)
    _add_presets(commands)
    add_tasks(commands)
    _add_models(commands)
    _add_doctor(commands)
    _add_places(commands)
    return parser


def _add_chat(commands: Commands) -> None:
    chat = commands.add_parser(
        _CHAT,
        help="open the chat, with a question if one is given",
        description="Open the chat. A question is asked at once: in a new chat, or in the last one with -c.",
        epilog=f'moe-chat "a question" does the same. {EXIT_CODES}',
    )
    chat.add_argument("question", nargs="*", metavar="QUESTION", help="what to ask")
    chat.add_argument(
        "-c", "--continue", dest="goes_on", action="store_true", default=argparse.SUPPRESS, help="in the chat used last"
    )
    chat.add_argument("--plain", action="store_true", default=argparse.SUPPRESS, help="line by line")
    add_chat_options(chat)


def _add_ask(commands: Commands) -> None:
    ask = commands.add_parser(
        "ask",
        help="answer one question without a screen",
        description="Answer one question on standard output. Text piped in is added to the question as context. "
        "Question and answer are kept with your chats, unless --no-save is given.",
        epilog="--json prints one object a line, told apart by `event`:"
        f" chat, loading, ready, domain, prefill, thinking, text, mode, notice, end, error. {EXIT_CODES}",
    )
    ask.add_argument("question", nargs="*", help="the question; without one, standard input is the question")
    ask.add_argument("--json", action="store_true", help="print events as JSON lines instead of text")
    ask.add_argument("--stats", action="store_true", help="print what the answer cost, after it")
    goes_on = ask.add_mutually_exclusive_group()
    goes_on.add_argument(
        "-c", "--continue", dest="goes_on", action="store_true", help="go on with the chat that was used last"
    )
    goes_on.add_argument("--chat", metavar="CHAT", help="go on with this chat: its id, or the beginning of it")
    ask.add_argument("--no-save", action="store_true", help="keep neither the question nor the answer")
    ask.add_argument("--show-thinking", action="store_true", help="print the thinking too, on standard error")
    add_chat_options(ask)


def _add_presets(commands: Commands) -> None:
    presets = add_command(
        commands,
        "presets",
        "list your presets: a system prompt, sampling and a mode under a name",
        description="List your presets, and what is in each. A chat begins with one by -p, and takes one by /preset.",
    )
    presets.add_argument("--names", action="store_true", help="the names alone")
    presets.add_argument("--json", action="store_true", help="print it as JSON")


def _add_models(commands: Commands) -> None:
    models = add_command(
        commands,
        "models",
        "list the models on this machine, with what each would cost and give at this budget",
        description="List the models of the known folders, of the Hugging Face cache, of LM Studio and Ollama, and of "
        "the current folder: of models that ggml would run the formats, the smallest budget, and the share of the "
        "experts that the budget holds, estimated from their headers. Loads no model.",
    )
    models.add_argument("folder", metavar="FOLDER", nargs="*", help="a folder or file to look at as well")
    add_task_options(models)


def _add_doctor(commands: Commands) -> None:
    doctor = commands.add_parser(
        "doctor",
        help="check what the chat depends on, and say what to do about each problem",
        description="Check this machine, the device and its link, the libraries, whether the model fits, and where "
        "chats are kept. Loads no model.",
        epilog=f"exit codes: 0 nothing failed · 1 a check failed · 2 wrong usage or settings · {SIGNAL_CODES}",
    )
    add_task_options(doctor)


def _add_places(commands: Commands) -> None:
    paths = commands.add_parser("paths", help="print where everything is kept, and its size")
    paths.add_argument("--json", action="store_true", help="print it as JSON")
    clean = commands.add_parser(
        "clean",
        help="show what takes disk space, and free it after asking",
        description="Show what takes disk space, and free it after asking. Without WHAT: unfinished downloads, "
        "logs, and the demo model, each asked about by itself. Chats, profiles and models of the Hugging Face cache "
        "are freed only when they are named here.",
        epilog="WHAT is one of downloads, logs, demo, profiles, damaged, bin, chats, or a model of the Hugging Face "
        f"cache such as owner/model. {EXIT_CODES}",
    )
    clean.add_argument("what", metavar="WHAT", nargs="*", help="what to free")
    clean.add_argument("-y", "--yes", action="store_true", help="do not ask")
    clean.add_argument("--list", action="store_true", help="only show what takes disk space")
    clean.add_argument("--json", action="store_true", help="with --list: print it as JSON")
    completion = commands.add_parser(
        "completion",
        help="print a script that completes commands and options in your shell",
        description="Print a completion script.",
        epilog='bash: eval "$(moe-chat completion bash)" in ~/.bashrc · '
        "zsh: moe-chat completion zsh > a file _moe-chat in a folder of $fpath · "
        "fish: moe-chat completion fish > ~/.config/fish/completions/moe-chat.fish",
    )
    completion.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="bash, zsh or fish")
