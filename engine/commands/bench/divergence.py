"""`bench divergence`: how far this engine's numbers, and the library's bf16, are from the library in float32.

One text, token by token: the KL of the float32 distribution of every next token to each other one, and how often the
likeliest token is the same. The library's bf16 is measured twice, as a whole forward and token by token: the difference
of the two is what grouping rows otherwise makes, so that no smaller number means anything.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import numpy as np
import torch

from engine.api import Message
from engine.backends.offloaded_model import OffloadedModel
from engine.chat.conversation import encode
from engine.commands.bench.kl import float32_of, kl, log_softmax
from engine.commands.task_outcome import OnTaskProgress, TaskOutcome
from engine.commands.verify.whole_model import load_whole
from engine.config import EXACT
from engine.errors import ConfigError
from engine.plan import machine
from engine.plan.budget import require_free
from engine.profiles.prompt_sets import shipped_domains, shipped_prompts
from offload.errors import WaitCancelled

LIMIT: Final = 1.25
"""This engine's KL to float32, over that of the library's bf16 token by token: at most this."""
_OURS, _WHOLE, _STEPS = "this engine, token by token", "transformers bf16, at once", "transformers bf16, token by token"


class Closeness(NamedTuple):
    """Over the positions of a text."""

    kl: float
    """Mean, in nats."""
    top1_rate: float
    """Positions at which the likeliest token is that of float32."""


def bench_divergence(
    engine: OffloadedModel, num_tok: int, on_progress: OnTaskProgress, is_cancelled: Callable[[], bool]
) -> TaskOutcome:
    """Loads the checkpoint with the library twice, one after the other, outside of the budget. Empties the KV cache.
    Raises ConfigError for a GGUF file, BudgetError without the memory, WaitCancelled."""
    if not engine.loaded.folder.is_dir():
        raise ConfigError(
            f"{engine.loaded.folder.name} is a GGUF file, which the library does not run in float32.",
            "Name the model's safetensors checkpoint.",
        )
    plan = engine.loaded.plan
    stored_bytes = plan.resident_bytes + plan.geometry.expert_bytes_total
    require_free(2 * stored_bytes + 8 * num_tok * engine.loaded.vocabulary_tok, "Holding the model in float32,")
    tokens = _text(engine, num_tok)

    def begin(stage: str, number: int) -> None:
        on_progress(stage, number, 4)
        if is_cancelled():
            raise WaitCancelled("Stopped.")

    with _every_core():
        begin("float32, by the library", 0)
        exact = [log_softmax(row) for row in _library(engine, "float32", tokens, is_cancelled)]
        found = {}
        for number, name in enumerate((_WHOLE, _STEPS, _OURS), 1):
            begin(name, number)
            if name == _OURS:
                rows = _own(engine, tokens)
            else:
                rows = _library(engine, "bfloat16", tokens, is_cancelled, by_token=name == _STEPS)
            found[name] = _closeness(exact, rows)
    return _outcome(engine, found, len(tokens))


@contextmanager
def _every_core() -> Iterator[None]:
    kept = torch.get_num_threads()
    torch.set_num_threads(machine.num_cores())
    try:
        yield
    finally:
        torch.set_num_threads(kept)


def _text(engine: OffloadedModel, num_tok: int) -> list[int]:
    """The first questions of the shipped domains in turn, as the chat gives them to the model. Raises ConfigError."""
    num_tok = min(num_tok, engine.budget.context_tok)
    tokens: list[int] = []
    for prompts in zip(*(shipped_prompts(domain) for domain in shipped_domains()), strict=False):
        for prompt in prompts:
            tokens += encode(engine.loaded.tokenizer, (Message("user", prompt),), engine.state.is_cancelled)
            if len(tokens) >= num_tok:
                return tokens[:num_tok]
    raise ConfigError(
        f"The shipped questions are {len(tokens)} tokens, fewer than {num_tok}.", "Give a smaller number."
    )


def _own(engine: OffloadedModel, tokens: list[int]) -> Iterator[np.ndarray]:
    """The logits [vocab] after every token."""
    was_approx = engine.state.is_approx
    engine.set_mode(EXACT)
    engine.decoder.cache.reset()
    try:
        yield float32_of(engine.decoder.prefill(tokens[:1], lambda done_tok: None))
        for logits in engine.decoder.force(tokens[1:]):
            yield float32_of(logits)
    finally:
        engine.state.is_approx = was_approx
        engine.decoder.cache.reset()


def _library(
    engine: OffloadedModel, dtype: str, tokens: list[int], is_cancelled: Callable[[], bool], by_token: bool = False
) -> Iterator[np.ndarray]:
    """The same of the unmodified library; the model is freed at the end."""
    whole, cache = load_whole(engine, dtype), None
    try:
        with torch.inference_mode():
            if not by_token:
                yield from map(float32_of, whole(input_ids=torch.tensor([tokens])).logits[0])
                return
            for token in tokens:
                if is_cancelled():
                    raise WaitCancelled("Stopped.")
                output = whole(input_ids=torch.tensor([[token]]), cache=cache, use_cache=True)
                cache = output.cache
                yield float32_of(output.logits[0, -1])
    finally:
        del whole, cache
        gc.collect()


def _closeness(exact: list[np.ndarray], rows: Iterator[np.ndarray]) -> Closeness:
    total = same = 0.0
    for reference, row in zip(exact, rows, strict=True):
        total += kl(reference, log_softmax(row))
        same += float(reference.argmax() == row.argmax())
    return Closeness(total / len(exact), same / len(exact))


def _outcome(engine: OffloadedModel, found: dict[str, Closeness], num_tok: int) -> TaskOutcome:
    ratio = found[_OURS].kl / found[_STEPS].kl if found[_STEPS].kl > 0 else 0.0
    is_ok = ratio <= LIMIT
    report: dict[str, object] = {
        "is_ok": is_ok,
        "num_tok": num_tok,
        "back_end": engine.backend.label,
        "kl_over_bf16": ratio,
        **{name: closeness._asdict() for name, closeness in found.items()},
    }
    head = f"KL to the library in float32, {num_tok} tokens; this engine runs on {engine.backend.label}"
    rows = (f"  {name:<36}{kept.kl:10.5f}   same likeliest token {kept.top1_rate:.1%}" for name, kept in found.items())
    end = f"over transformers bf16, token by token: {ratio:.2f}x (at most {LIMIT}x)"
    return TaskOutcome(is_ok, report, (head, *rows, end))
