"""What the arguments of `moe-chat trace record` and `moe-chat tune` ask of the engine."""

from __future__ import annotations

import argparse
from pathlib import Path

from app.domains.domain import domain_named
from app.domains.profile_words import NUM_NEW_TOK
from app.settings import options
from engine.api import RecordTrace, ResetEviction, TuneEviction
from engine.config import EngineConfig
from engine.errors import ConfigError

_DEFAULT_DOMAIN = "general"


def record_command(arguments: argparse.Namespace, request_id: int) -> RecordTrace:
    """The command of `trace record`. Raises ConfigError for what can be told before the model is loaded."""
    domain, prompts, num_new_tok = arguments.domain, arguments.prompts, arguments.tokens
    if domain is not None and prompts:
        raise ConfigError("--domain takes the prompts that are shipped with it; it contradicts --prompts.", "Give one.")
    if prompts and not Path(prompts).expanduser().is_file():
        raise ConfigError(f"There is no file {prompts}.", "Name a file of JSON objects, one a line, or a .txt.")
    out = Path(arguments.out).expanduser().resolve()
    if not out.parent.is_dir():
        raise ConfigError(f"There is no folder {out.parent}.", "Make it, or name another file: --out FILE.")
    return RecordTrace(
        request_id,
        path=str(out),
        domain=Path(prompts).stem if prompts else domain_named(domain or _DEFAULT_DOMAIN).name,
        prompts_path=str(Path(prompts).expanduser().resolve()) if prompts else None,
        num_prompts=_at_least_one(arguments.max_prompts, "--max-prompts"),
        num_new_tok=NUM_NEW_TOK if num_new_tok is None else options.at_least_one(num_new_tok, "--tokens"),
    )


def tune_command(arguments: argparse.Namespace, config: EngineConfig, request_id: int) -> TuneEviction | ResetEviction:
    """The command of `tune`. Raises ConfigError for what can be told before the model is loaded."""
    if arguments.reset:
        if arguments.keep or arguments.traces:
            raise ConfigError("--reset goes back to the defaults; it contradicts --keep and --trace.", "Give it alone.")
        return ResetEviction(request_id, config)
    paths = [Path(path).expanduser().resolve() for path in arguments.traces or ()]
    for path in paths:
        if not path.is_file():
            raise ConfigError(f"There is no file {path}.", "Record one: moe-chat trace record --out FILE")
    return TuneEviction(
        request_id,
        trace_paths=tuple(map(str, paths)),
        num_prompts=options.at_least_one(arguments.max_prompts, "--max-prompts"),
        num_new_tok=options.at_least_one(arguments.tokens, "--tokens"),
        is_kept=arguments.keep,
    )


def _at_least_one(number: int | None, flag: str) -> int | None:
    return None if number is None else options.at_least_one(number, flag)
