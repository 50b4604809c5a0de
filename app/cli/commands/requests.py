"""What the arguments of the long-running commands ask of the engine. All raise ConfigError for what can be told before
the model is loaded."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from app.domains.domain import domain_named
from engine.api import (
    Bench,
    BenchDivergence,
    BenchOverhead,
    BenchPeers,
    BenchPolicies,
    BenchPrediction,
    BenchPrefill,
    BenchStrategies,
    BuildProfile,
    DeleteProfile,
    Plan,
    RecordTrace,
    ResetEviction,
    ShowProfile,
    TuneEviction,
    Verify,
)
from engine.config import EngineConfig, parse_bytes
from engine.errors import ConfigError

Profiling = BuildProfile | ShowProfile | DeleteProfile
Request = Verify | Bench | BenchPeers | Plan | Profiling | RecordTrace | TuneEviction | ResetEviction

_REQUEST_ID = 1
_DIVERGENCE_TOK, _QUICK_DIVERGENCE_TOK = 384, 96
_PEER_TOK = 32
_ROUNDS, _PEER_ROUNDS, _QUICK_PEER_ROUNDS = 30, 3, 1
_DEFAULT_DOMAIN = "general"


def request_of(arguments: argparse.Namespace, config: EngineConfig) -> Request:
    """The request of a whole command line."""
    match arguments.command:
        case "verify":
            return Verify(_REQUEST_ID, arguments.tokens)
        case "bench":
            return _bench(arguments, config)
        case "plan":
            return Plan(_REQUEST_ID, config)
        case "trace":
            return _record(arguments)
        case "tune":
            return _tune(arguments, config)
        case _:
            return _profile(arguments)


def _bench(arguments: argparse.Namespace, config: EngineConfig) -> Bench | BenchPeers:
    is_quick = arguments.quick
    match arguments.bench:
        case "peers":
            return _peers(arguments, config)
        case "policies":
            links = arguments.links or ("A" if is_quick else "A,B,own")
            return BenchPolicies(_REQUEST_ID, is_quick, tuple(links.split(",")))
        case "strategies":
            links = arguments.links or ("A" if is_quick else "A,own")
            return BenchStrategies(_REQUEST_ID, is_quick, tuple(links.split(",")))
        case "prediction":
            return BenchPrediction(_REQUEST_ID, is_quick)
        case "divergence":
            num_tok = arguments.tokens or (_QUICK_DIVERGENCE_TOK if is_quick else _DIVERGENCE_TOK)
            return BenchDivergence(_REQUEST_ID, num_tok)
        case "prefill":
            return BenchPrefill(_REQUEST_ID, is_quick, tuple((arguments.links or "A,own").split(",")))
        case _:
            return BenchOverhead(_REQUEST_ID, arguments.rounds or _ROUNDS)


def _peers(arguments: argparse.Namespace, config: EngineConfig) -> BenchPeers:
    groups = arguments.groups or ("none" if config.memory_bytes is None else f"none,{config.memory_bytes}")
    return BenchPeers(
        _REQUEST_ID,
        replace(config, model=arguments.file or config.model, memory_bytes=None, residency=None),
        tuple(None if text.strip() == "none" else parse_bytes(text) for text in groups.split(",")),
        arguments.rounds or (_QUICK_PEER_ROUNDS if arguments.quick else _PEER_ROUNDS),
        arguments.prompt_tokens,
        arguments.tokens or _PEER_TOK,
    )


def _profile(arguments: argparse.Namespace) -> Profiling:
    match arguments.profile:
        case "list":
            return ShowProfile(_REQUEST_ID)
        case "show":
            return ShowProfile(_REQUEST_ID, arguments.domain, arguments.plan)
        case "delete":
            return DeleteProfile(_REQUEST_ID, arguments.domain)
    if arguments.domain is not None and arguments.name:
        raise ConfigError("--domain has a profile of its own name; it contradicts --name.", "Give one.")
    if arguments.domain is None and bool(arguments.prompts) != bool(arguments.name):
        raise ConfigError("--prompts and --name go together.", "Write it like --prompts questions.jsonl --name mine.")
    prompts = _prompts(arguments)
    return BuildProfile(
        _REQUEST_ID,
        domain=arguments.name or domain_named(arguments.domain or _DEFAULT_DOMAIN).name,
        prompts_path=prompts,
        num_prompts=arguments.max_prompts,
        num_new_tok=arguments.tokens,
        has_predictor=arguments.predictor,
    )


def _record(arguments: argparse.Namespace) -> RecordTrace:
    prompts, out = _prompts(arguments), Path(arguments.out).expanduser().resolve()
    if not out.parent.is_dir():
        raise ConfigError(f"There is no folder {out.parent}.", "Make it, or name another file: --out FILE.")
    return RecordTrace(
        _REQUEST_ID,
        path=str(out),
        domain=Path(prompts).stem if prompts else domain_named(arguments.domain or _DEFAULT_DOMAIN).name,
        prompts_path=prompts,
        num_prompts=arguments.max_prompts,
        num_new_tok=arguments.tokens,
    )


def _prompts(arguments: argparse.Namespace) -> str | None:
    """The file of the user's own prompts, where one is given."""
    if not arguments.prompts:
        return None
    if arguments.domain is not None:
        raise ConfigError("--domain takes the prompts that are shipped with it; it contradicts --prompts.", "Give one.")
    return str(_existing(arguments.prompts, "Name a file of JSON objects, one a line, or a .txt."))


def _tune(arguments: argparse.Namespace, config: EngineConfig) -> TuneEviction | ResetEviction:
    if arguments.reset:
        if arguments.keep or arguments.traces:
            raise ConfigError("--reset goes back to the defaults; it contradicts --keep and --trace.", "Give it alone.")
        return ResetEviction(_REQUEST_ID, config)
    paths = [_existing(path, "Record one: moe-chat trace record --out FILE") for path in arguments.traces or ()]
    return TuneEviction(
        _REQUEST_ID,
        trace_paths=tuple(map(str, paths)),
        num_prompts=arguments.max_prompts,
        num_new_tok=arguments.tokens,
        is_kept=arguments.keep,
    )


def _existing(name: str, hint: str) -> Path:
    path = Path(name).expanduser()
    if not path.is_file():
        raise ConfigError(f"There is no file {name}.", hint)
    return path.resolve()
