"""`python -m devtools.screen_cost`: the command line of the measurement."""

from __future__ import annotations

import argparse
import sys

from app.cli.arguments.shared import add_count, add_engine_options
from app.cli.main import run_guarded
from devtools.screen_cost.bench import bench_screen


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m devtools.screen_cost", description="Measure TPOT with the app on screen against without."
    )
    parser.add_argument("--quick", action="store_true", help="fewer tokens and rounds")
    add_count(parser, "--rounds", "interleaved rounds (default: 30; with --quick: 12)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    add_engine_options(parser)
    return parser


sys.exit(run_guarded(lambda: bench_screen(_parser().parse_args())))
