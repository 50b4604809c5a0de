"""The built-in domains: what a chat is about. A domain sets the system prompt; it is kept with the chat."""

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
