"""The command line of recorded routing: `trace record`, `trace replay`, `tune`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_traces(commands: Commands, add_task_options: Callable[[argparse.ArgumentParser], None], exits: str) -> None:
    """`add_task_options`: those of every task of the engine. `exits`: the exit codes, in words."""
    trace = commands.add_parser(
        "trace",
        help="record which experts a model chooses, and replay what a cache would have done with that",
        description="A routing trace holds, for every token and MoE layer, the chosen experts, all router scores and "
        "what was predicted. It belongs to one model.",
        epilog=exits,
    )
    kinds = trace.add_subparsers(dest="trace", metavar="WHAT", required=True)
    _add_record(kinds, add_task_options, exits)
    _add_replay(kinds, exits)
    _add_tune(commands, add_task_options, exits)


def _add_record(kinds: Commands, add_task_options: Callable[[argparse.ArgumentParser], None], exits: str) -> None:
    record = kinds.add_parser("record", help="answer prompts in exact mode, and record the routing", epilog=exits)
    record.add_argument("--domain", metavar="DOMAIN", help="the domain whose own prompts are used (default: general)")
    record.add_argument("--prompts", metavar="FILE", help="your prompts: JSON objects, one a line, or a .txt")
    record.add_argument("--out", metavar="FILE", required=True, help="the file to write, in place of an earlier trace")
    record.add_argument("--max-prompts", type=int, metavar="N", help="use the first N prompts (default: all)")
    record.add_argument("--tokens", type=int, metavar="N", help="tokens written per prompt, at most (default: 48)")
    add_task_options(record)


def _add_replay(kinds: Commands, exits: str) -> None:
    replay = kinds.add_parser(
        "replay",
        help="count what eviction policies would have loaded, and what nobody could have saved",
        description="Replay a trace through eviction policies, from empty slots. Neither the model nor the engine is "
        "needed. Bounds: the fewest loads any policy could do, knowing the future.",
        epilog=exits,
    )
    replay.add_argument("file", metavar="FILE", help="a routing trace")
    replay.add_argument("--slots", type=int, metavar="N", help="slots of every layer")
    replay.add_argument(
        "--residency", metavar="SHARE", default=argparse.SUPPRESS, help="share of each layer's experts (default: 25%%)"
    )
    replay.add_argument(
        "--policies", metavar="LIST", help="history, lru, lfu, tuned, belady, separated by commas (default: all)"
    )
    replay.add_argument(
        "--prefetch-depth",
        type=int,
        default=1,
        metavar="N",
        help="recorded predictions fetched a layer; 0: no prefetch (default: 1)",
    )
    replay.add_argument(
        "--hidden", type=int, default=1, metavar="N", help="copies that a layer's compute hides (default: 1)"
    )
    replay.add_argument("--json", action="store_true", help="print the report as JSON")


def _add_tune(commands: Commands, add_task_options: Callable[[argparse.ArgumentParser], None], exits: str) -> None:
    tune = commands.add_parser(
        "tune",
        help="find the eviction weights that load least on your model, and check them on other prompts",
        description="Search the weights of history eviction on recorded routing, at the slots of the present budget, "
        "and say what they save on prompts the search has not seen.",
        epilog=exits,
    )
    tune.add_argument(
        "--trace",
        dest="traces",
        metavar="FILE",
        action="append",
        help="a routing trace of this model; may be repeated (default: answer each domain's first prompts)",
    )
    tune.add_argument("--max-prompts", type=int, default=6, metavar="N", help="of each domain (default: 6)")
    tune.add_argument("--tokens", type=int, default=48, metavar="N", help="tokens written per prompt (default: 48)")
    tune.add_argument("--keep", action="store_true", help="use the weights for this model from now on, if they help")
    tune.add_argument("--reset", action="store_true", help="go back to the default weights")
    add_task_options(tune)
