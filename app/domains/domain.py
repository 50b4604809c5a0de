"""What a chat is about. A built-in domain has a system prompt, kept with the chat, and prompts for its profile."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from engine.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Domain:
    """One subject to chat about."""

    name: str
    title: str
    purpose: str
    """One line for the menu."""
    system_prompt: str
    """Empty: the model's own."""
    order: int


@cache
def all_domains() -> tuple[Domain, ...]:
    """Every built-in domain, in the order of the menu."""
    entries = [entry for entry in files("assets.domains").iterdir() if entry.name.endswith(".toml")]
    found = [
        Domain(name=entry.name.removesuffix(".toml"), **tomllib.loads(entry.read_text(encoding="utf-8")))
        for entry in entries
    ]
    return tuple(sorted(found, key=lambda domain: domain.order))


def domain_named(name: str) -> Domain:
    """The domain of that name. Raises ConfigError naming the others."""
    for domain in all_domains():
        if domain.name == name:
            return domain
    raise ConfigError(
        f"Unknown domain {name!r}.", f"Choose one of {', '.join(domain.name for domain in all_domains())}."
    )


def own_domain(name: str) -> Domain:
    """A domain that is there because the user built a profile of that name. It has no system prompt."""
    return Domain(name, name, "A profile of your own", "", order=100)


def domain_called(name: str) -> Domain:
    """The built-in domain of that name, or one of the user's own."""
    return next((domain for domain in all_domains() if domain.name == name), None) or own_domain(name)


def title_of(name: str) -> str:
    """A domain's title; a name of the user's own stays as it is."""
    return next((domain.title for domain in all_domains() if domain.name == name), name)


@cache
def num_prompts(name: str) -> int:
    """How many prompts are shipped to build the domain's profile from."""
    shipped = files("assets.prompts").joinpath(f"{name}.jsonl")
    return sum(bool(line.strip()) for line in shipped.read_bytes().splitlines()) if shipped.is_file() else 0
