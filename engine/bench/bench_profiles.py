"""Domain profiles for a bench, made in the same run from prompts that it does not time."""

from __future__ import annotations

from collections.abc import Sequence

from engine.offloaded_model import OffloadedModel
from engine.routing.profiling import build_domain_profile
from engine.routing.prompt_sets import shipped_prompts
from engine.task_outcome import OnTaskProgress
from offload.profile import DomainProfile


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
