"""The entry point: subcommands, each imported only when it runs.

Importing this module loads neither torch nor textual, so that `moe-chat --help` answers at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from app import options

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130

_EXIT_CODES = "exit codes: 0 done · 1 the engine or the model failed · 2 wrong usage or settings · 130 interrupted"


class _ShowVersion(argparse.Action):
    """`--version`, which looks the version up only when asked."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"moe-chat {version('moe-chat')}")
        except PackageNotFoundError:
            print("moe-chat, not installed")
        parser.exit(EXIT_OK)


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="moe-chat",
        description="Chat with a Mixture-of-Experts model that is bigger than the memory it is given.",
        epilog=f"Without a command the chat opens. {_EXIT_CODES}",
    )
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help="print the version and exit")
    options.add_engine_options(parser)
    options.add_sampling_options(parser)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    _add_ask(commands)
    _add_tasks(commands)
    _add_profile(commands)
    commands.add_parser("paths", help="print where chats, profiles, logs and models are kept")
    return parser


def _add_ask(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    ask = commands.add_parser(
        "ask",
        help="answer one question without a screen",
        description="Answer one question on standard output. Text piped in is added to the question as context.",
        epilog="--json prints one object a line, told apart by `event`:"
        f" loading, ready, domain, prefill, text, mode, end, error. {_EXIT_CODES}",
    )
    ask.add_argument("question", nargs="*", help="the question; without one, standard input is the question")
    ask.add_argument("--json", action="store_true", help="print events as JSON lines instead of text")
    ask.add_argument("--stats", action="store_true", help="print what the answer cost, after it")
    ask.add_argument("--system", metavar="TEXT", help="the system prompt, in place of the domain's")
    ask.add_argument(
        "--domain",
        metavar="NAME",
        default="general",
        help="whose system prompt is used, and whose profile warms the expert cache (default: general)",
    )
    options.add_engine_options(ask)
    options.add_sampling_options(ask)


def _add_tasks(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    verify = commands.add_parser("verify", help="prove that EXACT is exact on this model", epilog=_EXIT_CODES)
    verify.add_argument(
        "--tokens", type=int, default=32, metavar="N", help="tokens to decode and compare (default: 32)"
    )
    bench = commands.add_parser("bench", help="measure", epilog=_EXIT_CODES)
    bench.add_argument(
        "bench",
        metavar="WHAT",
        nargs="?",
        choices=("policies", "overhead"),
        default="policies",
        help="policies (default): the residency policies against each other and against the physical limit; "
        "overhead: a decode step against plain transformers",
    )
    bench.add_argument("--quick", action="store_true", help="policies: fewer prompts and tokens")
    bench.add_argument(
        "--links",
        metavar="LIST",
        help="policies: A (a copy takes 0.95 of a layer), B (load-on-demand costs 1.75x all-resident), own (the real "
        "link), or a bandwidth such as 0.5GB/s, separated by commas (default: A,B,own; with --quick: A)",
    )
    bench.add_argument("--rounds", type=int, default=30, metavar="N", help="overhead: interleaved rounds (default: 30)")
    plan = commands.add_parser("plan", help="split the byte budget for a model, without loading it", epilog=_EXIT_CODES)
    for task in (verify, bench, plan):
        _add_task_options(task)


def _add_task_options(task: argparse.ArgumentParser) -> None:
    task.add_argument("--json", action="store_true", help="print the report as JSON")
    options.add_engine_options(task)


def _add_profile(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    profile = commands.add_parser(
        "profile",
        help="build, list, show and delete domain profiles",
        description="A profile says which experts the prompts of a domain use. It belongs to one model.",
        epilog=_EXIT_CODES,
    )
    kinds = profile.add_subparsers(dest="profile", metavar="WHAT", required=True)
    build = kinds.add_parser(
        "build", help="answer a domain's prompts, and keep which experts they used", epilog=_EXIT_CODES
    )
    build.add_argument("--domain", metavar="DOMAIN", help="the domain whose own prompts are used (default: general)")
    build.add_argument("--prompts", metavar="FILE", help="your prompts: JSON objects, one a line, or a .txt")
    build.add_argument("--name", metavar="NAME", help="the domain that a profile of your prompts is for")
    build.add_argument("--max-prompts", type=int, metavar="N", help="use the first N prompts (default: all)")
    build.add_argument("--tokens", type=int, metavar="N", help="tokens written per prompt, at most (default: 48)")
    shown = kinds.add_parser("show", help="show a profile: the hit-rate curve of every layer", epilog=_EXIT_CODES)
    deleted = kinds.add_parser("delete", help="delete a profile", epilog=_EXIT_CODES)
    listed = kinds.add_parser("list", help="list the model's profiles and the hit rates to expect", epilog=_EXIT_CODES)
    for kind in (shown, deleted):
        kind.add_argument("domain", metavar="DOMAIN", help="the profile's domain")
    for kind in (build, listed, shown, deleted):
        _add_task_options(kind)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.command == "paths":
        from app.paths import AppPaths

        for name, path in AppPaths.from_environment().listed():
            print(f"{name:<12}{path}")
        return EXIT_OK
    if arguments.command == "ask":
        from app import headless

        return headless.ask(arguments)
    if arguments.command in ("verify", "bench", "plan", "profile"):
        from app import headless_tasks

        return headless_tasks.run(arguments)
    from app import launch

    return launch.chat(arguments)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code.

    No traceback reaches the user's screen: it goes to the log, whose place is printed.
    """
    arguments = build_parser().parse_args(argv)
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return EXIT_FAILED
    except Exception as error:  # noqa: BLE001  the last resort: whatever it was goes to the log
        return _report(error)


def _report(error: Exception) -> int:
    from app.crash_log import describe, log_crash
    from engine.errors import ConfigError, MoeChatError

    # The engine's errors arrive as words: its complaint about settings is told apart by its title.
    if not isinstance(error, MoeChatError):
        print(log_crash(error), file=sys.stderr)
        return EXIT_FAILED
    print(describe(error.title, error.message, error.hint), file=sys.stderr)
    return EXIT_USAGE if error.title == ConfigError.title else EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
