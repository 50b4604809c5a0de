"""A synthetic MoE layer of 128 small experts, 8 a token, half of which miss: the overhead of one layer.

The real layer, cache, policy and link run over experts in memory, small enough that computing and copying them takes
almost no time. Qwen3-MoE and GLM-4.5-Air have this shape; the demo has 16 experts and k = 2.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

import torch
from torch import nn

from engine.experts.formats.dense import DenseFormat
from engine.experts.layer import LayerContext, MoeLayer
from engine.experts.ring_prefill import RingPrefill
from engine.experts.router_tap import RouterTap
from engine.experts.step_state import StepState
from engine.lookahead.prefetching import NoForecaster, Prefetching
from offload.errors import WaitCancelled
from offload.geometry import Geometry, LayerGeometry
from offload.link.link import Link
from offload.link.slot_pool import SlotPool
from offload.link.staging import StagingRing
from offload.policies.eviction import make_eviction
from offload.policies.prefetch import make_prefetcher
from offload.policies.substitution import make_substitution
from offload.residency.cache import ExpertCache
from offload.residency.warming import warm_layers

NUM_EXPERTS, TOP_K, NUM_SLOTS = 128, 8, 64
_HIDDEN, _INTERMEDIATE = 64, 32
_NUM_STEPS = 100


class LayerOverhead(NamedTuple):
    """Medians over decode steps of one layer, in seconds: all of its time but compute and waits for the link."""

    all_resident_s: float
    half_missing_s: float


def measure_layer_overhead(is_cancelled: Callable[[], bool]) -> LayerOverhead:
    """Runs the synthetic layer. Raises WaitCancelled."""
    with closing(_SyntheticLayer()) as synthetic, torch.inference_mode():
        synthetic.overhead_s(TOP_K // 2, is_cancelled)  # warm-up
        return LayerOverhead(synthetic.overhead_s(0, is_cancelled), synthetic.overhead_s(TOP_K // 2, is_cancelled))


class _SmallExperts(nn.Module):
    """What a format needs of an experts module."""

    has_gate, has_bias, has_post_expert_norm, is_transposed = True, False, False, False

    def _apply_gate(self, projected: torch.Tensor) -> torch.Tensor:
        gate, up = projected.chunk(2, dim=-1)
        return nn.functional.silu(gate) * up


class _GivenLogits(nn.Module):
    """A router that returns the logits it is given."""

    def forward(self, logits: torch.Tensor) -> tuple[torch.Tensor]:
        return (logits,)


class _InMemory:
    """An ExpertSource of zeros."""

    def read_into(self, layer: int, expert: int, destination: memoryview) -> int:
        destination[:] = bytes(len(destination))
        return len(destination)


class _SyntheticLayer:
    """The layer and everything it works with; `close` stops the link."""

    def __init__(self) -> None:
        shapes: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
            "gate_up_proj": ((2 * _INTERMEDIATE, _HIDDEN), torch.bfloat16),
            "down_proj": ((_HIDDEN, _INTERMEDIATE), torch.bfloat16),
        }
        expert_format = DenseFormat(_SmallExperts(), shapes, TOP_K)
        expert_format.choose_kernel()
        shape = LayerGeometry(0, NUM_EXPERTS, TOP_K, expert_format.slot_bytes)
        geometry = Geometry((shape,))
        pool = SlotPool((NUM_SLOTS,), (shape.expert_bytes,))
        self._link = Link(_InMemory())
        self._cache = ExpertCache(geometry, pool, self._link, make_eviction("history", geometry))
        self._state = StepState(is_decode=True)
        self._router = _GivenLogits()
        ring = StagingRing(2, shape.expert_bytes, self._link)
        context = LayerContext(
            cache=self._cache,
            pool=pool,
            prefill=RingPrefill(self._cache, ring, geometry, self._state.is_cancelled),
            prefetching=Prefetching(
                self._cache, self._link, NoForecaster(), make_prefetcher("none", 0), geometry, always_predict=False
            ),
            substitution=make_substitution("none", 0.0),
            state=self._state,
        )
        self._layer = MoeLayer(0, shape, expert_format, RouterTap(self._router, None, shape, self._state), context)
        self._chance = random.Random(0)
        self._hidden = torch.randn(1, _HIDDEN, generator=torch.Generator().manual_seed(0)).bfloat16()
        self._weights = torch.full((1, TOP_K), 1 / TOP_K)
        warm_layers(self._cache, [range(NUM_SLOTS)])

    def overhead_s(self, num_missing: int, is_cancelled: Callable[[], bool]) -> float:
        """Median seconds of overhead of a step in which so many experts miss. Raises WaitCancelled."""
        times = []
        for _ in range(_NUM_STEPS):
            if is_cancelled():
                raise WaitCancelled("Stopped.")
            resident = self._cache.residents()[0]
            absent = sorted(set(range(NUM_EXPERTS)).difference(resident))
            experts = [*self._chance.sample(resident, TOP_K - num_missing), *self._chance.sample(absent, num_missing)]
            self._chance.shuffle(experts)
            self._router(torch.rand(1, NUM_EXPERTS))
            before_s = self._state.overhead_s
            self._layer(self._hidden, torch.tensor([experts]), self._weights)
            times.append(self._state.overhead_s - before_s)
        return statistics.median(times)

    def close(self) -> None:
        """Stops the link."""
        self._link.close()
