"""The command line of what runs long and prints a report: `verify`, `bench`, `plan`, `profile`, `trace`, `tune`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from app.cli.arguments.shared import add_command, add_count, add_json, add_prompt_options, add_task_options
from engine.config import RECORDED_TOK

if TYPE_CHECKING:
    from app.cli.arguments.shared import Commands


def add_tasks(commands: Commands) -> None:
    """Proving, measuring, planning, profiling, recording and tuning."""
    verify = add_command(commands, "verify", "compare the answers of EXACT with those of the whole model in memory")
    add_count(verify, "--tokens", "tokens to decode and compare", 32)
    add_task_options(verify)
    _add_bench(commands)
    plan = add_command(commands, "plan", "show how the memory budget would be divided, without loading the model")
    add_task_options(plan)
    _add_profile(commands)
    _add_trace(commands)
    _add_tune(commands)


def _add_bench(commands: Commands) -> None:
    bench = add_command(commands, "bench", "measure policies, strategies, prefill, or a GGUF file against llama.cpp")
    bench.add_argument(
        "bench",
        metavar="WHAT",
        nargs="?",
        choices=("policies", "strategies", "prediction", "prefill", "overhead", "divergence", "peers"),
        default="policies",
        help="policies (default): the residency policies against each other and against the physical limit; "
        "strategies: whole systems against each other, as published and at equal device bytes; "
        "prediction: which hidden state predicts routing best; prefill: the ways to get its experts, by prompt "
        "length; overhead: a decode step against plain transformers; divergence: the KL to float32, beside that of "
        "transformers' bf16; peers: a GGUF file against llama.cpp",
    )
    bench.add_argument("file", metavar="FILE", nargs="?", help="peers: the GGUF file (default: --model)")
    bench.add_argument("--quick", action="store_true", help="fewer prompts, tokens and rounds")
    bench.add_argument(
        "--links",
        metavar="LIST",
        help="policies, prefill: A (a copy takes 0.95 of a layer), B (load-on-demand costs 1.75x all-resident), own "
        "(the real link), or a bandwidth such as 0.5GB/s, separated by commas (default: A,B,own; with --quick: A; "
        "prefill and strategies, which have no B: A,own)",
    )
    add_count(bench, "--rounds", "overhead, peers: interleaved rounds (default: 30, peers: 3; with --quick peers: 1)")
    bench.add_argument(
        "--groups",
        metavar="LIST",
        help="peers: memory groups that whole runs are put in, such as none,3GiB,2GiB; takes root (default: none, and "
        "--memory)",
    )
    add_count(bench, "--prompt-tokens", "peers: prompt length", 200)
    add_count(bench, "--tokens", "peers: tokens written; divergence: tokens read (default: 32, divergence: 384)")
    add_task_options(bench)


def _add_profile(commands: Commands) -> None:
    profile = add_command(
        commands,
        "profile",
        "build, list, show and delete domain profiles",
        description="A profile says which experts the prompts of a domain use. It belongs to one model.",
    )
    kinds = profile.add_subparsers(dest="profile", metavar="WHAT", required=True)
    build = add_command(kinds, "build", "answer a domain's prompts, and keep which experts they used")
    add_prompt_options(build)
    build.add_argument("--name", metavar="NAME", help="the domain that a profile of your prompts is for")
    build.add_argument(
        "--predictor",
        action="store_true",
        help="also train the predictor of the next layer's experts that the strategy duoserve uses; takes minutes",
    )
    shown = add_command(kinds, "show", "show a profile: the hit-rate curve of every layer")
    shown.add_argument("--plan", action="store_true", help="and how slots would be shared out by it, move by move")
    deleted = add_command(kinds, "delete", "delete a profile")
    listed = add_command(kinds, "list", "list the model's profiles and the hit rates to expect")
    for kind in (shown, deleted):
        kind.add_argument("domain", metavar="DOMAIN", help="the profile's domain")
    for kind in (build, listed, shown, deleted):
        add_task_options(kind)


def _add_trace(commands: Commands) -> None:
    trace = add_command(
        commands,
        "trace",
        "record which experts a model chooses, and replay what a cache would have done with that",
        description="A routing trace holds, for every token and MoE layer, the chosen experts, all router scores and "
        "what was predicted. It belongs to one model.",
    )
    kinds = trace.add_subparsers(dest="trace", metavar="WHAT", required=True)
    record = add_command(kinds, "record", "answer prompts in exact mode, and record the routing")
    record.add_argument("--out", metavar="FILE", required=True, help="the file to write, in place of an earlier trace")
    add_prompt_options(record)
    add_task_options(record)
    _add_replay(kinds)


def _add_replay(kinds: Commands) -> None:
    replay = add_command(
        kinds,
        "replay",
        "count what eviction policies would have loaded, and the lower bound (Belady)",
        description="Replay a trace through eviction policies, from empty slots. Neither the model nor the engine is "
        "needed. Bounds: the fewest loads any policy could do, knowing the future.",
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
    add_json(replay)


def _add_tune(commands: Commands) -> None:
    tune = add_command(
        commands,
        "tune",
        "find the eviction weights that load least on your model, and check them on other prompts",
        description="Search the weights of history eviction on recorded routing, at the slots of the present budget, "
        "and say what they save on prompts the search has not seen.",
    )
    tune.add_argument(
        "--trace",
        dest="traces",
        metavar="FILE",
        action="append",
        help="a routing trace of this model; may be repeated (default: answer each domain's first prompts)",
    )
    add_count(tune, "--max-prompts", "of each domain", 6)
    add_count(tune, "--tokens", "tokens written per prompt", RECORDED_TOK)
    tune.add_argument("--keep", action="store_true", help="use the weights for this model from now on, if they help")
    tune.add_argument("--reset", action="store_true", help="go back to the default weights")
    add_task_options(tune)
