"""Verifies against the whole model in memory: token ids and logits must be equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForCausalLM

from engine.arrays import Array
from engine.backends.offloaded_model import OffloadedModel
from engine.checkpoint.library_folder import folder_for_library
from engine.commands.task_outcome import OnTaskProgress
from engine.commands.verify.comparison import ComparisonResult
from engine.config import format_bytes
from offload.errors import WaitCancelled


class Comparison(NamedTuple):
    """One prompt: this engine's output compared with the library's."""

    prompt_tok: int
    new_tok: int
    equal_tok: int
    """New tokens up to the first difference."""
    logits_diff: float
    """Largest absolute difference of the logits at the prompt's end."""

    @property
    def is_equal(self) -> bool:
        return self.equal_tok == self.new_tok and self.logits_diff == 0


def against_whole_model(
    engine: OffloadedModel,
    prompts: list[list[int]],
    num_tok: int,
    on_progress: OnTaskProgress,
    is_cancelled: Callable[[], bool],
) -> ComparisonResult:
    """Loads the library's model beside the engine, outside its budget. Raises WaitCancelled."""
    on_progress("loading the whole model", 0, len(prompts))
    whole = load_whole(engine)
    chunk_tok = engine.budget.chunk_tok
    comparisons = compare(
        engine,
        prompts,
        num_tok,
        on_progress,
        is_cancelled,
        lambda ids, room: library_greedy(whole, ids, room, chunk_tok),
    )
    size = format_bytes(engine.loaded.plan.resident_bytes + engine.loaded.plan.geometry.expert_bytes_total)
    return result_of(comparisons, f"Against the whole model in memory ({size}):")


Greedy = Callable[[list[int], int], tuple[list[int], Array]]
"""(prompt, number of new tokens) -> (ids, the logits [vocab] at the prompt's end)."""


def compare(
    engine: OffloadedModel,
    prompts: list[list[int]],
    num_tok: int,
    on_progress: OnTaskProgress,
    is_cancelled: Callable[[], bool],
    reference: Greedy,
) -> list[Comparison]:
    """This engine's greedy answers beside the reference's. Raises WaitCancelled."""
    comparisons = []
    for number, prompt in enumerate(prompts):
        on_progress("comparing", number, len(prompts))
        if is_cancelled():
            raise WaitCancelled("Stopped.")
        room = min(num_tok, engine.budget.context_tok - len(prompt))
        ours, our_logits = engine.greedy_ids(prompt, room)
        theirs, their_logits = reference(prompt, room)
        equal = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b), len(theirs))
        difference = _largest_difference(our_logits, their_logits)
        comparisons.append(Comparison(len(prompt), len(theirs), equal, difference))
    return comparisons


def _largest_difference(ours: Array, theirs: Array) -> float:
    return float(abs(_float32(ours) - _float32(theirs)).max())


def _float32(logits: Array) -> Array:
    return logits.float() if isinstance(logits, torch.Tensor) else logits


def result_of(comparisons: list[Comparison], heading: str) -> ComparisonResult:
    """The comparisons as a report, under a heading that says what was compared with."""
    lines = tuple(
        f"prompt of {c.prompt_tok} tokens: {c.equal_tok} of {c.new_tok} greedy tokens equal, "
        f"logits differ by {c.logits_diff:g} at most"
        for c in comparisons
    )
    report: dict[str, object] = {"comparisons": [c._asdict() for c in comparisons]}
    return all(c.is_equal for c in comparisons), report, (heading, *lines)


def load_whole(engine: OffloadedModel, dtype: str = "auto") -> Any:
    """The unmodified model of the same checkpoint, held whole, with the library's own experts function. `dtype`: as it
    is stored, or another format.

    Weights are copied out of the mapped files: some kernels multiply float32 in another order where a tensor does not
    begin at a multiple of 16 bytes, and in a file it may begin anywhere.
    """
    with folder_for_library(engine.loaded.folder) as folder:
        whole = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
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
