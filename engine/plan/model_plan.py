"""The memory that a model needs, known before a weight is read. Made by a back end, used by `engine.plan.budget`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from offload.geometry import Geometry
from offload.strategy.bundle import PIPELINE, RING_SLOTS, Strategy


class GrowingBytes(NamedTuple):
    """Bytes that grow with the context: `fixed_bytes + bytes_per_tok * context_tok`."""

    fixed_bytes: int
    bytes_per_tok: int

    def at(self, context_tok: int) -> int:
        """Bytes at a context of so many tokens."""
        return self.fixed_bytes + self.bytes_per_tok * context_tok


class ChunkNeeds(NamedTuple):
    """What computing prompts in chunks of a given length takes beside the weights."""

    kv: GrowingBytes
    """The KV cache and every other state a layer keeps."""
    workspace: GrowingBytes
    """What one forward takes beside weights and KV cache: `forward`, routed experts, logits, and a margin."""
    forward: GrowingBytes
    """Temporary tensors of one forward without routed experts, attention's over the whole context included."""


NeedsOfChunk = Callable[[int], ChunkNeeds]
"""By the number of tokens of a prefill chunk."""


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """A model's parts in bytes, and its routed experts' shape."""

    geometry: Geometry
    resident_bytes: int
    """Weights and buffers that never move."""
    conversion_bytes: int
    """What a link thread needs beside slots: to convert an expert, or for the ends of its reads."""
    model_context_tok: int
    staging_slots: int = RING_SLOTS
    """Of prefill's ring, where a strategy has one."""
    may_stage_layers: bool = True
    """Whether two buffers of a whole layer take the ring's place where they are affordable."""
    runtime_margin_bytes: int = 176 << 20
    """What the back end's libraries allocate while they run. By default torch's: mostly oneDNN's compiled kernels,
    whose number `engine.client` limits."""

    def ring_slots(self, policies: Strategy) -> int:
        """Slots of prefill's ring with these policies: a pipeline's are its own."""
        return policies.staging_slots if policies.prefill == PIPELINE else self.staging_slots
