"""One real MoeLayer over random experts on a link that moves by chance, and what the library computes for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers.integrations.moe import grouped_mm_experts_forward

from engine.experts.formats.dense import DenseFormat
from engine.experts.layer import LayerContext, MoeLayer
from engine.experts.ring_prefill import RingPrefill
from engine.experts.step_state import StepState
from engine.lookahead.prefetching import NoForecaster, Prefetching
from offload.geometry import Geometry, LayerGeometry
from offload.link.slot_pool import SlotPool
from offload.link.staging import StagingRing
from offload.policies.eviction import make_eviction
from offload.policies.prefetch import make_prefetcher
from offload.policies.substitution import make_substitution
from offload.residency.cache import ExpertCache
from tests.unit.engine.experts.wandering_link import WanderingLink

HIDDEN, INTERMEDIATE = 64, 48


class Experts(nn.Module):
    """An experts module as the library calls it: gated, with or without biases, stored either way round."""

    has_gate, has_post_expert_norm, _is_expert_parallel = True, False, False

    def __init__(self, num_experts: int, dtype: torch.dtype, has_bias: bool, is_transposed: bool, seed: int) -> None:
        super().__init__()
        self.num_experts, self.has_bias, self.is_transposed = num_experts, has_bias, is_transposed
        generator = torch.Generator().manual_seed(seed)

        def random(*shape: int) -> nn.Parameter:
            values = torch.randn(num_experts, *shape, generator=generator) / 4
            return nn.Parameter(values.to(dtype), requires_grad=False)

        up, down = (2 * INTERMEDIATE, HIDDEN), (HIDDEN, INTERMEDIATE)
        self.gate_up_proj = random(*(up[::-1] if is_transposed else up))
        self.down_proj = random(*(down[::-1] if is_transposed else down))
        if has_bias:
            self.gate_up_proj_bias, self.down_proj_bias = random(2 * INTERMEDIATE), random(HIDDEN)

    def _apply_gate(self, projected: torch.Tensor) -> torch.Tensor:
        gate, up = projected.chunk(2, dim=-1)
        return nn.functional.silu(gate) * up


class FixedTap:
    """Scores that a test sets."""

    def __init__(self, num_experts: int) -> None:
        self.values = np.linspace(1.0, 0.0, num_experts, dtype=np.float32)

    def scores(self) -> np.ndarray:
        return self.values

    selection_scores = all_scores = scores


class LayerBench:
    """The layer, its cache and its link. `stop_after` looks at the cancel flag, the user has stopped."""

    def __init__(
        self,
        *,
        num_experts: int = 8,
        top_k: int = 3,
        slots: int = 4,
        dtype: torch.dtype = torch.bfloat16,
        has_bias: bool = False,
        is_transposed: bool = False,
        eviction: str = "lru",
        seed: int = 0,
    ) -> None:
        self.experts = Experts(num_experts, dtype, has_bias, is_transposed, seed)
        shapes = {name: (tuple(value.shape[1:]), value.dtype) for name, value in self.experts.named_parameters()}
        self.format = DenseFormat(self.experts, shapes, top_k)
        self.format.choose_kernel()
        self.geometry = Geometry((LayerGeometry(0, num_experts, top_k, self.format.slot_bytes),))
        self.link = WanderingLink(seed, self._stored)
        pool = SlotPool((slots,), (self.format.slot_bytes,))
        self.cache = ExpertCache(self.geometry, pool, self.link, make_eviction(eviction, self.geometry))
        self._looks_left: int | None = None
        self.state = StepState(is_decode=True, is_cancelled=self._is_stopped)
        ring = StagingRing(2, self.format.slot_bytes, self.link)
        self.prefill = RingPrefill(self.cache, ring, self.geometry, self._is_stopped)
        prefetching = Prefetching(
            self.cache, self.link, NoForecaster(), make_prefetcher("none", 0), self.geometry, always_predict=False
        )
        self.tap: Any = FixedTap(num_experts)
        rule = make_substitution("boundary", 1.0)
        self.context = LayerContext(self.cache, pool, self.prefill, prefetching, rule, self.state)
        self.layer = MoeLayer(0, self.geometry.layers[0], self.format, self.tap, self.context)
        self._generator = torch.Generator().manual_seed(seed)
        self._dtype = dtype

    def stop_after(self, num_samples: int | None) -> None:
        """The user stops: seen by whoever looks after so many others. None: never."""
        self._looks_left = num_samples

    def _is_stopped(self) -> bool:
        if self._looks_left is None:
            return False
        self._looks_left -= 1
        return self._looks_left < 0

    def _stored(self, layer: int, expert: int, num_bytes: int) -> bytes:
        """The expert as its slot must hold it."""
        slot = torch.zeros(num_bytes, dtype=torch.uint8)
        for part in self.format.parameters:
            raw = slot[part.slot_offset : part.slot_offset + part.num_bytes]
            raw.view(part.dtype).view(part.shape).copy_(getattr(self.experts, part.name)[expert])
        return slot.numpy().tobytes()

    def fill(self, experts: Sequence[int]) -> None:
        """Makes experts resident, in empty slots."""
        for expert in experts:
            lease = self.cache.claim_free(0, expert)
            assert lease is not None
            if lease.copy is not None:
                lease.copy.wait()
        self.cache.release(0)

    def inputs(self, index: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Random hidden states and routing weights for a routing [tokens, k]."""
        ids = torch.tensor(index)
        hidden = torch.randn(len(index), HIDDEN, generator=self._generator).to(self._dtype)
        return hidden, ids, torch.rand(*ids.shape, generator=self._generator).to(self._dtype)

    def ours(self, hidden: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """The layer's output; decode for one token, prefill for several."""
        self.state.is_decode = len(hidden) == 1
        return self.layer(hidden, index, weights)

    def theirs(self, hidden: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """The library's output, over all experts in one tensor."""
        return grouped_mm_experts_forward(self.experts, hidden, index, weights)
