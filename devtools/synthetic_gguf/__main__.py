"""The command line of `python -m devtools.synthetic_gguf`."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

from devtools.synthetic_gguf.file import write_gguf
from devtools.synthetic_gguf.precision import FILE_TYPES
from devtools.synthetic_gguf.shapes import SHAPES
from devtools.synthetic_gguf.vocabulary import read_vocabulary
from engine.demo.location import built_demo


def main() -> int:
    """Writes the file that the command line names; returns the exit status."""
    parser = argparse.ArgumentParser("python -m devtools.synthetic_gguf", description=__doc__)
    parser.add_argument("out", type=Path, help="the file to write")
    parser.add_argument("--shape", choices=SHAPES, default="qwen3-30b-a3b")
    parser.add_argument("--type", choices=FILE_TYPES, default="q4_k_m")
    parser.add_argument("--layers", type=int, help="the first N layers (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tokenizer", type=Path, metavar="DIR", help="a model folder (default: the demo's)")
    arguments = parser.parse_args()
    folder = arguments.tokenizer or built_demo()
    if folder is None:
        raise SystemExit("The tokenizer is the demo's, which is not built. Build it: make demo.")
    shape = SHAPES[arguments.shape]
    if arguments.layers is not None:
        shape = replace(shape, num_layers=arguments.layers)
    name = f"{arguments.shape}, {shape.num_layers} layers, {arguments.type}"
    start_s = time.monotonic()
    size = write_gguf(
        arguments.out, name, shape, arguments.type, read_vocabulary(folder), arguments.seed, _show_progress
    )
    print(f"{name}: {size / 1e9:.2f} GB in {time.monotonic() - start_s:.0f} s", file=sys.stderr)
    return 0


def _show_progress(done_bytes: int, total_bytes: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done_bytes / 1e9:.2f} of {total_bytes / 1e9:.2f} GB", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
