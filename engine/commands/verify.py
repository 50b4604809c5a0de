"""Proof of exactness on the loaded model: token ids and logits against the unmodified library, and slots against files.

Against the whole model where it fits beside the engine; else layer by layer: every MoE layer is streamed whole and the
library's own experts function is run on the inputs this engine's layers got. Either way more memory is used than the
engine's budget, and the report says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForCausalLM
from transformers.integrations.moe import grouped_mm_experts_forward

from engine.api import Message
from engine.backends.offloaded_model import OffloadedModel
from engine.backends.transformers.stored_weights import WithheldModule
from engine.chat.conversation import encode
from engine.commands.task_outcome import OnTaskProgress, TaskOutcome
from engine.config import EXACT, format_bytes
from engine.experts.layer import MoeLayer
from engine.plan import machine
from engine.plan.budget import slots_in_words
from offload.errors import WaitCancelled

_QUESTIONS = (
    "What is the capital of France?",
    "Write a Python function that returns the n-th Fibonacci number.",
    "Summarise this: " + "The river ran past the mill, and the miller counted the sacks of grain. " * 24,
)
_MAX_SLOTS_CHECKED = 48
_SHARE_OF_FREE = 0.9


class Comparison(NamedTuple):
    """One prompt, ours against the library's."""

    prompt_tok: int
    new_tok: int
    equal_tok: int
    """New tokens up to the first difference."""
    logits_diff: float
    """Largest absolute difference of the logits at the prompt's end."""

    @property
    def is_equal(self) -> bool:
        return self.equal_tok == self.new_tok and self.logits_diff == 0


@dataclass(slots=True)
class LayerCalls:
    """What one MoE layer got and gave, call by call: (hidden, index, weights, out)."""

    calls: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]] = field(default_factory=list)


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
        run = _against_whole_model if method == "whole" else _layer_by_layer
        is_equal, report, lines = run(engine, prompts, num_tok, on_progress, is_cancelled)
        on_progress("slot checksums", 0, 1)
        checked, wrong = check_slots(engine)
        engine.cache.check_integrity()
    finally:
        engine.state.is_approx = was_approx
        engine.decoder.cache.reset()
    is_ok = is_equal and not wrong and checked > 0
    report |= {"is_exact": is_ok, "method": method, "slots_checked": checked, "slots_wrong": wrong}
    report |= {"threads": torch.get_num_threads(), "dtype": str(engine.loaded.model.dtype).removeprefix("torch.")}
    report |= {"chunk_tok": engine.budget.chunk_tok, "slots_per_layer": list(engine.budget.slots_per_layer)}
    return TaskOutcome(is_ok, report, (*_heading(engine, is_ok), *lines, _slots_line(checked, wrong)))


def _prompt(engine: OffloadedModel, question: str) -> list[int]:
    ids = encode(engine.loaded.tokenizer, (Message("user", question),))
    return ids[: max(engine.budget.context_tok // 2, 1)]


def _choose(engine: OffloadedModel) -> str:
    """The whole model if it fits into what is free now beside the engine."""
    plan = engine.loaded.plan
    needed = plan.resident_bytes + plan.geometry.expert_bytes_total + engine.budget.workspace_bytes
    free = machine.available_bytes() - machine.rss_bytes()
    return "whole" if needed < _SHARE_OF_FREE * free else "layers"


def _heading(engine: OffloadedModel, is_ok: bool) -> tuple[str, str]:
    shown = slots_in_words(engine.budget.slots_per_layer)
    return (
        "EXACT" if is_ok else "NOT EXACT",
        f"{engine.loaded.folder.name}: {shown} slots a layer, {torch.get_num_threads()} threads, chunks of "
        f"{engine.budget.chunk_tok} tokens; this check runs outside the engine's budget.",
    )


def _slots_line(checked: int, wrong: int) -> str:
    return f"{checked - wrong} of {checked} sampled slots hold exactly their expert's bytes."


# -- against the whole model ------------------------------------------------------------------------------------------

Found = tuple[bool, dict[str, object], tuple[str, ...]]


def _against_whole_model(
    engine: OffloadedModel,
    prompts: list[list[int]],
    num_tok: int,
    on_progress: OnTaskProgress,
    is_cancelled: Callable[[], bool],
) -> Found:
    on_progress("loading the whole model", 0, len(prompts))
    whole = load_whole(engine)
    comparisons = []
    for number, prompt in enumerate(prompts):
        on_progress("comparing", number, len(prompts))
        if is_cancelled():
            raise WaitCancelled("Stopped.")
        room = min(num_tok, engine.budget.context_tok - len(prompt))
        ours, our_logits = engine.greedy_ids(prompt, room)
        theirs, their_logits = library_greedy(whole, prompt, room, engine.budget.chunk_tok)
        equal = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b), len(theirs))
        difference = float((our_logits.float() - their_logits.float()).abs().max())
        comparisons.append(Comparison(len(prompt), len(theirs), equal, difference))
    lines = tuple(
        f"prompt of {c.prompt_tok} tokens: {c.equal_tok} of {c.new_tok} greedy tokens equal, "
        f"logits differ by {c.logits_diff:g} at most"
        for c in comparisons
    )
    size = format_bytes(engine.loaded.plan.resident_bytes + engine.loaded.plan.geometry.expert_bytes_total)
    report: dict[str, object] = {"comparisons": [c._asdict() for c in comparisons]}
    return all(c.is_equal for c in comparisons), report, (f"Against the whole model in memory ({size}):", *lines)


def load_whole(engine: OffloadedModel) -> Any:
    """The unmodified model of the same checkpoint, held whole, with the library's own experts function.

    In memory of its own: the library maps the files, where tensors begin anywhere, and some kernels multiply float32 in
    another order where a tensor does not begin at a multiple of 16 bytes.
    """
    whole = AutoModelForCausalLM.from_pretrained(
        engine.loaded.folder,
        dtype="auto",
        experts_implementation="grouped_mm",
        use_safetensors=True,
        local_files_only=True,
        trust_remote_code=False,
    ).eval()
    for value in whole.parameters():
        value.data = value.data.clone()
    return whole


def library_greedy(whole: Any, prompt: list[int], num_new_tok: int, chunk_tok: int) -> tuple[list[int], torch.Tensor]:
    """Greedy ids of the unmodified model on the same chunk schedule, and the logits [vocab] at the prompt's end."""
    cache: Any = None
    logits = first = None
    ids: list[int] = []
    with torch.inference_mode():
        for start in range(0, len(prompt), chunk_tok):
            chunk = torch.tensor([prompt[start : start + chunk_tok]])
            output = whole(input_ids=chunk, cache=cache, use_cache=True, logits_to_keep=1)
            cache, logits = output.cache, output.logits[0, -1]
        assert logits is not None
        first = logits.clone()
        for _ in range(num_new_tok):
            ids.append(int(logits.argmax()))
            if len(ids) < num_new_tok:
                output = whole(input_ids=torch.tensor([[ids[-1]]]), cache=cache, use_cache=True, logits_to_keep=1)
                cache, logits = output.cache, output.logits[0, -1]
    return ids, first


# -- layer by layer ---------------------------------------------------------------------------------------------------


def _layer_by_layer(
    engine: OffloadedModel,
    prompts: list[list[int]],
    num_tok: int,
    on_progress: OnTaskProgress,
    is_cancelled: Callable[[], bool],
) -> Found:
    prompt = min(prompts, key=len)
    checks = [LayerCalls() for _ in engine.layers]
    with RecordingCalls(engine, checks):
        engine.greedy_ids(prompt, min(num_tok, 8))
    equal = calls = 0
    for number, check in enumerate(checks):
        on_progress("checking layers", number, len(checks))
        if is_cancelled():
            raise WaitCancelled("Stopped.")
        right = _library_agrees(engine, engine.loaded.modules[number], check)
        equal += sum(right)
        calls += len(right)
    report: dict[str, object] = {"layers": len(checks), "calls": calls, "calls_equal": equal}
    line = f"{equal} of {calls} calls of {len(checks)} MoE layers equal the library's experts function bit for bit."
    return equal == calls, report, ("Layer by layer, each MoE layer streamed whole:", line)


class RecordingCalls:
    """While active, every MoE layer's inputs and outputs are kept."""

    def __init__(self, engine: OffloadedModel, checks: list[LayerCalls]) -> None:
        self._engine, self._checks = engine, checks

    def __enter__(self) -> None:
        for number, layer in enumerate(self._engine.layers):
            self._engine.loaded.modules[number].module.offload_layer = self._recorder(layer, self._checks[number])  # type: ignore[assignment]

    def __exit__(self, *exc: object) -> None:
        for number, layer in enumerate(self._engine.layers):
            self._engine.loaded.modules[number].module.offload_layer = layer  # type: ignore[assignment]

    @staticmethod
    def _recorder(layer: MoeLayer, check: LayerCalls) -> Callable[..., torch.Tensor]:
        def record(hidden: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
            out = layer(hidden, index, weights)
            check.calls.append((hidden.clone(), index.clone(), weights.clone(), out.clone()))
            return out

        return record


def _library_agrees(engine: OffloadedModel, withheld: WithheldModule, check: LayerCalls) -> list[bool]:
    """Materialises one experts module, runs the library's function on the recorded inputs, takes the weights off
    again."""
    module, model = withheld.module, engine.loaded.model
    try:
        for name, parameter in withheld.parameters.items():
            rows = [
                parameter.convert([part.read() for part in parts], parts, model).to(parameter.dtype)
                for _, parts in sorted(parameter.parts.items())
            ]
            module._parameters[name] = torch.nn.Parameter(torch.stack(rows), requires_grad=False)
        with torch.inference_mode():
            return [torch.equal(grouped_mm_experts_forward(module, *call[:3]), call[3]) for call in check.calls]
    finally:
        for name in withheld.parameters:
            module._parameters[name] = None


# -- slots against files ----------------------------------------------------------------------------------------------


def check_slots(engine: OffloadedModel, max_slots: int = _MAX_SLOTS_CHECKED) -> tuple[int, int]:
    """(slots checked, slots whose bytes are not their expert's as the library converts it from the files)."""
    resident = [
        (layer, expert, slot)
        for layer, geometry in enumerate(engine.loaded.plan.geometry.layers)
        for expert in range(geometry.num_experts)
        if (slot := engine.cache.slot_of(layer, expert)) is not None
    ]
    step = max(len(resident) // max_slots, 1)
    sample = resident[::step]
    return len(sample), sum(not _holds_its_expert(engine, *where) for where in sample)


def _holds_its_expert(engine: OffloadedModel, layer: int, expert: int, slot: int) -> bool:
    memory = engine.pool.tensor(slot)
    for layout in engine.loaded.formats[layer].parameters:
        parameter = engine.loaded.modules[layer].parameters[layout.name]
        parts = parameter.parts[expert]
        value = parameter.convert([part.read() for part in parts], parts, engine.loaded.model).to(layout.dtype)
        held = memory[layout.slot_offset : layout.slot_offset + layout.num_bytes]
        if not torch.equal(held, value.contiguous().view(torch.uint8).reshape(-1)):
            return False
    return True
