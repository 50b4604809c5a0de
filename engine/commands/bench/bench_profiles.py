"""Builds domain profiles for a bench, in the same run, from prompts that are not timed."""

from __future__ import annotations

from collections.abc import Sequence

from engine.backends.offloaded_model import OffloadedModel
from engine.commands.routing_recording import build_domain_profile
from engine.commands.task_outcome import OnTaskProgress
from engine.profiles.prompt_sets import shipped_prompts
from offload.replay.profile import DomainProfile


def profiles_of(
    engine: OffloadedModel,
    domains: Sequence[str],
    num_skipped: int,
    num_prompts: int,
    num_tok: int,
    on_progress: OnTaskProgress,
) -> dict[str, DomainProfile]:
    """By domain: from its prompts after the first `num_skipped`. Raises WaitCancelled."""
    profiles = {}
    for number, domain in enumerate(domains):
        on_progress("recording profiles", number, len(domains))
        prompts = shipped_prompts(domain)[num_skipped : num_skipped + num_prompts]
        profiles[domain] = build_domain_profile(
            engine, engine.fingerprint, domain, prompts, num_tok, lambda stage, done, total: None
        )
    return profiles
