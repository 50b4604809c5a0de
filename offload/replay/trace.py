"""Recorded routing: which experts every MoE layer chose for every token, by what scores, and what was predicted.

The file format (version 1) is that of `offload.archive`, named "moe-chat routing trace". Its header holds `model`
(fingerprint), `domain` and `layers` (see `geometry_to_json`); its arrays are those of `RoutingTrace`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from offload.archive import geometry_from_json, geometry_to_json, read_archive, text_of, write_archive
from offload.bounded_json import told
from offload.errors import TraceError
from offload.geometry import Geometry

NO_EXPERT: Final = 0xFFFF
"""Fills rows of ids where a layer chose fewer experts than the widest one, or nothing was predicted."""

_FORMAT = "moe-chat routing trace"
_VERSION = 1
_REMEDY = "Record it again: moe-chat trace record --out FILE"


@dataclass(frozen=True, slots=True, eq=False)
class RoutingTrace:
    """One row ("step") per token, in the order they were computed. Arrays are not written to after construction.

    `layers`, `experts` and `k` below are the number of MoE layers, and the most experts and the largest k of any.
    """

    model: str
    """Fingerprint of the model that routed."""
    domain: str
    """The prompts' domain; empty: none, or several."""
    geometry: Geometry
    ids: np.ndarray
    """uint16 [steps, layers, k]: chosen experts in the router's order, then NO_EXPERT."""
    predicted: np.ndarray
    """uint16 [steps, layers, k]: what was predicted for the layer one MoE layer earlier, best first, then NO_EXPERT."""
    scores: np.ndarray | None
    """float16 [steps, layers, experts]: all router scores, NaN where there is none. None: none were recorded."""
    is_prefill: np.ndarray
    """bool [steps]: the token was part of a prompt."""
    prompt_starts: np.ndarray
    """int64 [prompts]: the step at which each prompt begins, ascending."""

    def __post_init__(self) -> None:
        """Raises TraceError when shapes, types or ids do not fit the geometry."""
        problem = _problem(self)
        if problem:
            raise TraceError(f"A routing trace does not fit its model: {problem}.", _REMEDY)

    @property
    def num_steps(self) -> int:
        """Tokens recorded."""
        return len(self.ids)

    @property
    def num_prompts(self) -> int:
        """Prompts recorded."""
        return len(self.prompt_starts)

    def decode_only(self) -> RoutingTrace:
        """The decode steps, without those of prompts. A copy, unless there were no others."""
        if not self.is_prefill.any():
            return self
        return self._with_steps(~self.is_prefill, np.arange(self.num_prompts))

    def with_prompts(self, numbers: Sequence[int]) -> RoutingTrace:
        """The steps of some prompts (ascending, counted from 0), one after the other."""
        kept = np.zeros(self.num_steps, bool)
        ends = [*self.prompt_starts.tolist()[1:], self.num_steps]
        for number in numbers:
            kept[self.prompt_starts[number] : ends[number]] = True
        return self._with_steps(kept, np.array(numbers, np.int64))

    def _with_steps(self, kept: np.ndarray, prompts: np.ndarray) -> RoutingTrace:
        """The steps of a mask [steps], and the prompts they belong to."""
        num_before = np.concatenate([[0], np.cumsum(kept)])
        return RoutingTrace(
            self.model,
            self.domain,
            self.geometry,
            self.ids[kept],
            self.predicted[kept],
            None if self.scores is None else self.scores[kept],
            self.is_prefill[kept],
            num_before[self.prompt_starts[prompts]].astype(np.int64),
        )

    def experts_by_step(self, layer: int) -> list[list[int]]:
        """Per step, the experts chosen in a layer."""
        return _rows(self.ids[:, layer])

    def predicted_by_step(self, layer: int) -> list[list[int]]:
        """Per step, the experts predicted for a layer, best first; empty where nothing was predicted."""
        return _rows(self.predicted[:, layer])

    def selection_mask(self) -> np.ndarray:
        """bool [steps, layers, experts]: the expert was chosen."""
        mask = np.zeros((*self.ids.shape[:2], max_experts(self.geometry)), dtype=bool)
        steps, layers, ranks = np.nonzero(self.ids != NO_EXPERT)
        mask[steps, layers, self.ids[steps, layers, ranks]] = True
        return mask

    def save(self, path: Path) -> None:
        """Write the trace, atomically. Raises OSError."""
        arrays = {name: getattr(self, name) for name in ("ids", "predicted", "is_prefill", "prompt_starts")}
        if self.scores is not None:
            arrays["scores"] = self.scores
        header = {"model": self.model, "domain": self.domain, "layers": geometry_to_json(self.geometry)}
        write_archive(path, _FORMAT, _VERSION, header, arrays)


def load_trace(path: Path) -> RoutingTrace:
    """Read a trace. Raises TraceError when the file is missing, damaged, or something else."""
    header, arrays = read_archive(path, _FORMAT, _VERSION, TraceError, _REMEDY)
    try:
        return RoutingTrace(
            model=text_of(header, "model"),
            domain=text_of(header, "domain"),
            geometry=geometry_from_json(header["layers"]),
            ids=arrays["ids"],
            predicted=arrays["predicted"],
            scores=arrays.get("scores"),
            is_prefill=arrays["is_prefill"],
            prompt_starts=arrays["prompt_starts"],
        )
    except KeyError as failure:
        raise TraceError(f"{path} is damaged: it lacks {told(failure)}.", _REMEDY) from failure
    except (TypeError, ValueError) as failure:
        raise TraceError(f"{path} is damaged: {told(failure)}.", _REMEDY) from failure
    except TraceError as failure:
        raise TraceError(f"{path}: {failure.message}", failure.hint) from failure


def concatenate(traces: Sequence[RoutingTrace]) -> RoutingTrace:
    """One trace after the other. Scores are kept if all have them; so is the domain if all have the same.

    Raises TraceError when there is none, or when they are of different models.
    """
    if not traces:
        raise TraceError("There is no routing trace to work on.", "Record one first.")
    first = traces[0]
    if any(trace.model != first.model or not trace.geometry.routes_like(first.geometry) for trace in traces):
        raise TraceError("These routing traces were recorded with different models.", "Use those of one model.")
    offsets = np.cumsum([0, *(trace.num_steps for trace in traces[:-1])])
    scores = [trace.scores for trace in traces if trace.scores is not None]
    return RoutingTrace(
        first.model,
        first.domain if all(trace.domain == first.domain for trace in traces) else "",
        first.geometry,
        np.concatenate([trace.ids for trace in traces]),
        np.concatenate([trace.predicted for trace in traces]),
        np.concatenate(scores) if len(scores) == len(traces) else None,
        np.concatenate([trace.is_prefill for trace in traces]),
        np.concatenate([trace.prompt_starts + offset for trace, offset in zip(traces, offsets, strict=True)]),
    )


def max_experts(geometry: Geometry) -> int:
    """The most experts of any layer."""
    return max((layer.num_experts for layer in geometry.layers), default=0)


def max_top_k(geometry: Geometry) -> int:
    """The largest k of any layer."""
    return max((layer.top_k for layer in geometry.layers), default=0)


def _rows(ids: np.ndarray) -> list[list[int]]:
    rows: list[list[int]] = ids.tolist()
    if (ids == NO_EXPERT).any():
        return [[expert for expert in row if expert != NO_EXPERT] for row in rows]
    return rows


def _problem(trace: RoutingTrace) -> str:
    """What is wrong with a trace's arrays; empty if nothing is."""
    steps, num_layers = len(trace.is_prefill), trace.geometry.num_layers
    rows = (steps, num_layers, max_top_k(trace.geometry))
    expected = {
        "ids": (trace.ids, np.uint16, rows),
        "predicted": (trace.predicted, np.uint16, rows),
        "is_prefill": (trace.is_prefill, np.bool_, (steps,)),
        "prompt_starts": (trace.prompt_starts, np.int64, trace.prompt_starts.shape[:1]),
    }
    if trace.scores is not None:
        expected["scores"] = (trace.scores, np.float16, (steps, num_layers, max_experts(trace.geometry)))
    for name, (array, dtype, shape) in expected.items():
        if array.dtype != dtype or array.shape != shape:
            return f"{name} is {array.dtype} {list(array.shape)}, not {np.dtype(dtype)} {list(shape)}"
    starts = trace.prompt_starts
    if len(starts) and (starts[0] < 0 or (np.diff(starts) < 0).any() or starts[-1] > steps):
        return "its prompts do not begin in order, within its steps"
    num_experts = np.array([layer.num_experts for layer in trace.geometry.layers], dtype=np.int64)[:, None]
    for name in ("ids", "predicted"):
        if ((getattr(trace, name) >= num_experts) & (getattr(trace, name) != NO_EXPERT)).any():
            return f"{name} names an expert that its layer does not have"
    in_order = np.sort(trace.ids, axis=2)
    if ((in_order[:, :, 1:] == in_order[:, :, :-1]) & (in_order[:, :, 1:] != NO_EXPERT)).any():
        return "a layer chose the same expert twice for one token"
    return ""
