"""Engine and sampling options of the command line, and the configuration they come to.

Values stay text until a command really runs: `--help` need not import the engine's configuration.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from app.formatting.sanitise import whole

if TYPE_CHECKING:
    from engine.config import EngineConfig, SamplingConfig

DEMO_RESIDENCY = 0.5
"""The demo fits into memory; half of its experts are kept out so that offloading really happens."""

_Value = TypeVar("_Value")

_ENGINE_OPTIONS = (
    ("--model", "NAME", "a checkpoint folder, a GGUF file, a Hugging Face id, or `demo` (default)"),
    ("--memory", "BYTES", "one budget over everything, such as 6GiB"),
    ("--residency", "SHARE", "share of the routed experts on the device, such as 25%% (the demo's default: 50%%)"),
    ("--context", "TOKENS", "context length (default: what the budget affords)"),
    ("--mode", "MODE", "exact (default) or approx"),
    ("--alpha", "X", "approx: how far below the cut a missed expert's score may be and still be replaced"),
    ("--eviction", "POLICY", "history (default), lru or lfu"),
    ("--slots", "PLAN", "nonuniform (default: by what the model's profiles say, where there are any) or uniform"),
    ("--prefill", "PATH", "auto (default), full-layer (stage whole layers) or ring (one expert at a time)"),
    (
        "--prefetch",
        "KIND",
        "layers-ahead (default), router-ahead (one layer), router-ahead-floor (the paper's depth), router-ahead-gain, "
        "layers-ahead-gain or none",
    ),
    ("--prefetch-depth", "N", "experts prefetched a layer, at most"),
    ("--link", "RATE", "emulate a link of this bandwidth, such as 0.5GB/s; shown as emulated"),
    ("--threads", "N", "compute threads"),
    ("--link-threads", "N", "threads that copy experts"),
)

_SHORT = {"--model": "-m"}

_SAMPLING_OPTIONS = (
    ("--temperature", "X", "0 is greedy (default: the model's own)"),
    ("--top-p", "P", "nucleus sampling"),
    ("--top-k", "N", "the N likeliest tokens only"),
    ("--min-p", "P", "tokens at least P times as likely as the likeliest"),
    ("--repetition-penalty", "X", "above 1: repeat less"),
    ("--seed", "N", "make sampling repeatable"),
    ("--max-tokens", "N", "end the answer after N tokens"),
)


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """The options that every command with an engine has. A subcommand's value wins over one given before it."""
    group = parser.add_argument_group("engine")
    for flag, metavar, text in _ENGINE_OPTIONS:
        flags = (_SHORT[flag], flag) if flag in _SHORT else (flag,)
        group.add_argument(*flags, metavar=metavar, help=text, default=argparse.SUPPRESS)


def add_sampling_options(parser: argparse.ArgumentParser) -> None:
    """How the next token is drawn."""
    group = parser.add_argument_group("sampling")
    for flag, metavar, text in _SAMPLING_OPTIONS:
        group.add_argument(flag, metavar=metavar, help=text, default=argparse.SUPPRESS)
    group.add_argument(
        "--stop",
        metavar="TEXT",
        action="append",
        default=argparse.SUPPRESS,
        help="end before this text; may be repeated",
    )


def _read(arguments: argparse.Namespace, name: str, parse: Callable[[str], _Value]) -> _Value | None:
    from engine.errors import ConfigError

    text = getattr(arguments, name, None)
    if text is None:
        return None
    try:
        return parse(text)
    except ValueError:
        flag = "--" + name.replace("_", "-")
        raise ConfigError(f"{flag} {text} is not a number.", f"Write it like {flag} 4.") from None


def at_least_one(number: int, flag: str) -> int:
    """`number`, which `flag` gave. Raises ConfigError below 1."""
    from engine.errors import ConfigError

    if number < 1:
        raise ConfigError(f"{flag} is {number}.", "It must be at least 1.")
    return number


def engine_config(arguments: argparse.Namespace) -> EngineConfig:
    """The engine's configuration. Raises ConfigError."""
    from engine import config

    model = getattr(arguments, "model", config.DEMO_MODEL)
    memory_bytes = _read(arguments, "memory", config.parse_bytes)
    residency = _read(arguments, "residency", config.parse_residency)
    if model == config.DEMO_MODEL and memory_bytes is None and residency is None:
        residency = DEMO_RESIDENCY
    given = {
        "context_tok": _read(arguments, "context", int),
        "mode": _read(arguments, "mode", str.lower),
        "alpha": _read(arguments, "alpha", float),
        "eviction": _read(arguments, "eviction", str),
        "slots": _read(arguments, "slots", str),
        "prefill": _read(arguments, "prefill", str),
        "prefetch": _read(arguments, "prefetch", str),
        "prefetch_depth": _read(arguments, "prefetch_depth", int),
        "link_bytes_per_s": _read(arguments, "link", config.parse_rate),
        "compute_threads": _read(arguments, "threads", int),
        "link_threads": _read(arguments, "link_threads", int),
    }
    known = {name: value for name, value in given.items() if value is not None}
    return config.EngineConfig(model=model, memory_bytes=memory_bytes, residency=residency, **known)  # type: ignore[arg-type]


def sampling_config(arguments: argparse.Namespace) -> SamplingConfig:
    """How to sample; None everywhere the model's own default shall apply. Raises ConfigError."""
    from engine.config import SamplingConfig

    return SamplingConfig(
        temperature=_read(arguments, "temperature", float),
        top_p=_read(arguments, "top_p", float),
        top_k=_read(arguments, "top_k", int),
        min_p=_read(arguments, "min_p", float),
        repetition_penalty=_read(arguments, "repetition_penalty", float),
        seed=_read(arguments, "seed", int),
        max_new_tok=_read(arguments, "max_tokens", int),
        stop=tuple(map(whole, getattr(arguments, "stop", ()))),
    )
