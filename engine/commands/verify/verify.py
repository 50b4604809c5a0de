"""Proof of exactness on the loaded model: token ids and logits against the unmodified library, and slots against files.

Against the whole model where it fits beside the engine; else layer by layer: every MoE layer is streamed whole and the
library's own experts function is run on the inputs this engine's layers got. Either way more memory is used than the
engine's budget, and the report says so.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.api import Message
from engine.backends.offloaded_model import OffloadedModel
from engine.backends.transformers.backend import TransformersBackend
from engine.chat.conversation import encode
from engine.commands.task_outcome import OnTaskProgress, TaskOutcome
from engine.commands.verify.comparison import ComparisonResult
from engine.commands.verify.held_whole import against_itself_held_whole
from engine.commands.verify.layers import layer_by_layer
from engine.commands.verify.stored_bytes import check_slots
from engine.commands.verify.whole_model import against_whole_model
from engine.config import EXACT
from engine.errors import NonFiniteLogitsError
from engine.plan import machine
from offload.errors import WaitCancelled

_QUESTIONS = (
    "What is the capital of France?",
    "Write a Python function that returns the n-th Fibonacci number.",
    "Summarise this: " + "The river ran past the mill, and the miller counted the sacks of grain. " * 24,
)
_SHARE_OF_FREE = 0.9


def verify(
    engine: OffloadedModel,
    num_tok: int,
    on_progress: OnTaskProgress,
    is_cancelled: Callable[[], bool],
    method: str | None = None,
) -> TaskOutcome:
    """Verifies in EXACT mode whatever the mode is now, and empties the KV cache. `method`: whole, layers, or None to
    choose."""
    was_approx = engine.state.is_approx
    engine.set_mode(EXACT)
    try:
        prompts = [_prompt(engine, question) for question in _QUESTIONS]
        method = method or _choose(engine)
        run = _runs(engine)[method]
        try:
            is_equal, report, lines = run(engine, prompts, num_tok, on_progress, is_cancelled)
        except NonFiniteLogitsError as error:
            is_equal, report, lines = False, {}, (error.message,)
        damaged = engine.loaded.not_finite(_tensor_progress(on_progress, is_cancelled))
        on_progress("slot checksums", 0, 1)
        checked, wrong = check_slots(engine)
        engine.cache.check_integrity()
    finally:
        engine.state.is_approx = was_approx
        engine.decoder.cache.reset()
    is_ok = is_equal and not wrong and checked > 0 and not damaged
    report |= {
        "is_exact": is_ok,
        "method": method,
        "slots_checked": checked,
        "slots_wrong": wrong,
        "tensors_not_finite": damaged,
    }
    report |= {"threads": engine.backend.num_threads, "dtype": engine.loaded.number_format}
    report |= {"back_end": engine.backend.label}
    report |= {"chunk_tok": engine.budget.chunk_tok, "slots_per_layer": list(engine.budget.slots_per_layer)}
    return TaskOutcome(
        is_ok, report, (*_heading(engine, is_ok), *lines, _slots_line(checked, wrong), _finite_line(damaged))
    )


def _runs(engine: OffloadedModel) -> dict[str, Callable[..., ComparisonResult]]:
    """What can be compared with, by method. On ggml the same back end with every expert in memory is what EXACT means;
    the library is another back end."""
    if isinstance(engine.backend, TransformersBackend):
        return {"whole": against_whole_model, "layers": layer_by_layer}
    return {"whole": against_itself_held_whole}


def _tensor_progress(on_progress: OnTaskProgress, is_cancelled: Callable[[], bool]) -> Callable[[int, int], None]:
    def told(done: int, total: int) -> None:
        on_progress("looking for values that are not finite", done, total)
        if is_cancelled():
            raise WaitCancelled("Stopped.")

    return told


def _prompt(engine: OffloadedModel, question: str) -> list[int]:
    ids = encode(engine.loaded.tokenizer, (Message("user", question),), engine.state.is_cancelled)
    return ids[: max(engine.budget.context_tok // 2, 1)]


def _choose(engine: OffloadedModel) -> str:
    """The whole model if it fits into what is free now beside the engine."""
    plan = engine.loaded.plan
    needed = plan.resident_bytes + plan.geometry.expert_bytes_total + engine.budget.workspace_bytes
    free = machine.available_bytes() - machine.rss_bytes()
    if needed < _SHARE_OF_FREE * free or "layers" not in _runs(engine):
        return "whole"
    return "layers"


def _heading(engine: OffloadedModel, is_ok: bool) -> tuple[str, str]:
    return (
        "EXACT" if is_ok else "NOT EXACT",
        f"{engine.loaded.folder.name}: {engine.budget.groups.in_words()}, {engine.backend.num_threads} threads, "
        f"chunks of {engine.budget.chunk_tok} tokens, {engine.backend.label}; "
        "this check runs outside the engine's budget.",
    )


def _slots_line(checked: int, wrong: int) -> str:
    return f"{checked - wrong} of {checked} sampled slots hold exactly their expert's bytes."


def _finite_line(damaged: list[str]) -> str:
    if not damaged:
        return "Every stored value is finite."
    shown = ", ".join(damaged[:8]) + (f" and {len(damaged) - 8} more" if len(damaged) > 8 else "")
    return f"NaN or infinite values are stored in: {shown}. Fetch the checkpoint again."
