"""Records the routing of prompts, and builds a domain's profile from it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from engine.api import Message
from engine.backends.offloaded_model import OffloadedModel
from engine.chat.conversation import ConversationEncoder
from engine.chat.end_tokens import end_tokens
from engine.commands.task_outcome import OnTaskProgress
from engine.config import EXACT, SamplingConfig
from engine.sampling.defaults import with_model_defaults
from engine.sampling.sampler import Sampler
from offload.replay.profile import DomainProfile, build_profile
from offload.replay.trace import RoutingTrace
from offload.replay.trace_writer import TraceWriter

_SEED = 20


def record_routing(
    engine: OffloadedModel,
    fingerprint: str,
    domain: str,
    prompts: Sequence[str],
    num_new_tok: int,
    on_progress: OnTaskProgress,
    begun: TraceWriter | None = None,
) -> RoutingTrace:
    """Answers every prompt in EXACT mode, at most `num_new_tok` tokens each, and records prompt and answer.

    `begun` is the writer of a call that raised, with the same arguments: its whole prompts are not recorded again. A
    prompt too long for the context is cut. Empties the KV cache. Raises WaitCancelled, ExpertReadError.
    """
    writer = begun or TraceWriter(fingerprint, domain, engine.loaded.plan.geometry)
    was_approx = engine.state.is_approx
    engine.set_mode(EXACT)
    engine.state.recorder = writer
    try:
        for number in range(writer.num_prompts, len(prompts)):
            on_progress("recording", number, len(prompts))
            writer.begin_prompt()
            try:
                _answer(engine, prompts[number], num_new_tok, _SEED + number)
            except BaseException:
                writer.drop_prompt()
                raise
        on_progress("recording", len(prompts), len(prompts))
    finally:
        engine.state.recorder = None
        engine.state.is_approx = was_approx
        engine.decoder.cache.reset()
    return writer.trace()


def _answer(engine: OffloadedModel, prompt: str, num_new_tok: int, seed: int) -> None:
    """Answers as the chat does: with the model's own sampling and chat template, up to an end token."""
    loaded, context_tok = engine.loaded, engine.budget.context_tok
    room = max(context_tok - num_new_tok, context_tok // 2)
    encoder = ConversationEncoder(loaded.tokenizer, engine.state.is_cancelled)
    ids = encoder.encode((Message("user", prompt),))[:room]
    sampling = with_model_defaults(SamplingConfig(seed=seed), loaded.defaults)
    ends = end_tokens(loaded.tokenizer, loaded.defaults, loaded.end_token_sources, encoder.template)
    engine.decoder.cache.reset()
    logits = engine.decoder.prefill(ids, lambda done_tok: None)
    for token in engine.decoder.tokens(logits, Sampler(sampling), num_new_tok):
        if token in ends:
            return


def build_domain_profile(
    engine: OffloadedModel,
    fingerprint: str,
    domain: str,
    prompts: Sequence[str],
    num_new_tok: int,
    on_progress: OnTaskProgress,
    clock: Callable[[], float] = time.time,
    begun: TraceWriter | None = None,
) -> DomainProfile:
    """Records the prompts and builds the profile. Raises as `record_routing` does, and ProfileError without prompts."""
    trace = record_routing(engine, fingerprint, domain, prompts, num_new_tok, on_progress, begun)
    on_progress("replaying", 0, 1)
    return build_profile(trace, created_s=clock(), weights=engine.tuned.weights)


def describe_profile(profile: DomainProfile, slots_per_layer: Sequence[int]) -> tuple[str, ...]:
    """Lines for a person: what the profile was built from, and each layer's hit-rate curve and rate at its slots."""
    expected = profile.expected_hit_rate(slots_per_layer)
    made = time.strftime("%Y-%m-%d %H:%M", time.localtime(profile.created_s))
    head = (
        f"{profile.domain}: {profile.num_prompts} prompts, {profile.num_tok} tokens "
        f"({profile.num_decode_tok} written), built {made}",
        "expected hit rate at the present slots: " + (f"{expected:.1%}" if expected is not None else "–"),
        "layer  slots  hit rate  history curve over 1..E slots                 warmest experts",
    )
    return (*head, *(_layer_line(profile, number, slots) for number, slots in enumerate(slots_per_layer)))


def _layer_line(profile: DomainProfile, number: int, slots: int) -> str:
    curve, shape = profile.curves("history")[number], profile.geometry.layers[number]
    points = range(shape.top_k, shape.num_experts + 1)
    step = max(len(points) // 32, 1)
    bars = "".join("▁▂▃▄▅▆▇█"[min(int(curve.at(slot) * 8), 7)] for slot in points[::step])
    warmest = " ".join(map(str, profile.layers[number].warmest(min(slots, 8))))
    return f"{shape.layer_number:5d}  {slots:5d}  {curve.at(slots):8.1%}  {bars:<44}  {warmest}"
