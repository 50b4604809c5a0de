"""`moe-chat profile`: what its arguments ask of the engine."""

from __future__ import annotations

import argparse
from pathlib import Path

from app.domains.domain import domain_named
from app.domains.profile_words import NUM_NEW_TOK
from app.settings.options import at_least_one
from engine.api import BuildProfile, DeleteProfile, ShowProfile
from engine.errors import ConfigError

_DEFAULT_DOMAIN = "general"


def profile_command(arguments: argparse.Namespace, request_id: int) -> BuildProfile | ShowProfile | DeleteProfile:
    """The command to send. Raises ConfigError for what can be told before the model is loaded."""
    match arguments.profile:
        case "list":
            return ShowProfile(request_id)
        case "show":
            return ShowProfile(request_id, arguments.domain, arguments.plan)
        case "delete":
            return DeleteProfile(request_id, arguments.domain)
        case _:
            return _build(arguments, request_id)


def _build(arguments: argparse.Namespace, request_id: int) -> BuildProfile:
    domain, prompts, name = arguments.domain, arguments.prompts, arguments.name
    at_most, num_new_tok = arguments.max_prompts, arguments.tokens
    if domain is not None and (prompts or name):
        raise ConfigError(
            "--domain takes the prompts that are shipped with it; it contradicts --prompts and --name.",
            "Give --domain alone, or --prompts FILE --name NAME.",
        )
    if bool(prompts) != bool(name):
        raise ConfigError("--prompts and --name go together.", "Write it like --prompts questions.jsonl --name mine.")
    if prompts and not Path(prompts).expanduser().is_file():
        raise ConfigError(f"There is no file {prompts}.", "Name a file of JSON objects, one a line, or a .txt.")
    return BuildProfile(
        request_id,
        domain=name or domain_named(domain or _DEFAULT_DOMAIN).name,
        prompts_path=str(Path(prompts).expanduser().resolve()) if prompts else None,
        num_prompts=None if at_most is None else at_least_one(at_most, "--max-prompts"),
        num_new_tok=NUM_NEW_TOK if num_new_tok is None else at_least_one(num_new_tok, "--tokens"),
    )
