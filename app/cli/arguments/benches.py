"""The command line of `moe-chat bench`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_bench(commands: Commands, epilog: str) -> argparse.ArgumentParser:
    """Adds `bench` with its own options; the engine's are the caller's."""
    bench = commands.add_parser("bench", help="measure", epilog=epilog)
    bench.add_argument(
        "bench",
        metavar="WHAT",
        nargs="?",
        choices=("policies", "prediction", "prefill", "overhead", "peers"),
        default="policies",
        help="policies (default): the residency policies against each other and against the physical limit; "
        "prediction: which hidden state foretells routing best; prefill: the ways to get its experts, by prompt "
        "length; overhead: a decode step against plain transformers; peers: a GGUF file against llama.cpp",
    )
    bench.add_argument("file", metavar="FILE", nargs="?", help="peers: the GGUF file (default: --model)")
    bench.add_argument("--quick", action="store_true", help="fewer prompts, tokens and rounds")
    bench.add_argument(
        "--links",
        metavar="LIST",
        help="policies, prefill: A (a copy takes 0.95 of a layer), B (load-on-demand costs 1.75x all-resident), own "
        "(the real link), or a bandwidth such as 0.5GB/s, separated by commas (default: A,B,own; with --quick: A; "
        "prefill, which has no B: A,own)",
    )
    bench.add_argument(
        "--rounds",
        type=int,
        metavar="N",
        help="overhead, peers: interleaved rounds (default: 30, peers: 3; with --quick peers: 1)",
    )
    bench.add_argument(
        "--groups",
        metavar="LIST",
        help="peers: memory groups that whole runs are put in, such as none,3GiB,2GiB; takes root (default: none, and "
        "--memory)",
    )
    bench.add_argument(
        "--prompt-tokens", type=int, default=200, metavar="N", help="peers: prompt length (default: 200)"
    )
    bench.add_argument("--tokens", type=int, default=32, metavar="N", help="peers: tokens written (default: 32)")
    return bench
