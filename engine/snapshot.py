"""The engine's whole state, as the panels show it: the latest one wins. Frozen values, no torch: they cross a process
boundary."""

from __future__ import annotations

from dataclasses import dataclass, field

from offload.counters import Counters


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The byte budget and its planned parts, against what the process holds."""

    budget_bytes: int
    parts: tuple[tuple[str, int], ...]
    """(name, planned bytes), adding up to at most the budget."""
    rss_bytes: int
    peak_rss_bytes: int


@dataclass(frozen=True, slots=True)
class LinkUse:
    """The link now."""

    bytes_per_s: float | None
    """Measured over the last copies; None before the first."""
    best_bytes_per_s: float | None
    emulated_bytes_per_s: float | None
    """The emulated bandwidth; None: the link is real."""
    queued: int
    bytes_moved: int
    """Since load."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Speed of the answer being written, or of the last one. None where there is no data."""

    ttft_ms: float | None = None
    tpot_now_ms: float | None = None
    tpot_mean_ms: float | None = None
    tpot_p50_ms: float | None = None
    tpot_p95_ms: float | None = None
    link_wait_rate: float | None = None
    """Share of decode time spent waiting for the link."""
    recent_tpot_ms: tuple[float, ...] = ()
    """The last tokens, oldest first, at most 64."""
    compute_rate: float | None = None
    """Share of decode time spent computing; with `link_wait_rate` and `overhead_rate` it adds up to 1."""
    overhead_rate: float | None = None
    """Share of decode time that is neither compute nor a wait for the link."""
    times_the_limit: float | None = None
    """TPOT as a multiple of the physical limit."""
    is_limit_estimate: bool = True
    """The limit is estimated while the answer is written; computed over its own tokens afterwards."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole state the panels show. Counters travel only in here."""

    sequence: int
    phase: str
    """loading, idle, prefill, decode, task."""
    mode: str
    residency: tuple[bytes, ...]
    """Per MoE layer: one code a routed expert."""
    slots_per_layer: tuple[int, ...]
    """Each layer's share of the slots; they add up to the slots there are."""
    layer_numbers: tuple[int, ...]
    """The decoder-layer number of each MoE layer."""
    layer_counters: tuple[Counters, ...]
    """Since load, per MoE layer."""
    turn_counters: Counters
    """Of the answer being written, or of the last one."""
    prefetch_depth: int
    context_used_tok: int
    context_tok: int
    timing: Timing
    memory: MemoryUse
    link: LinkUse
    is_context_approximate: bool = False
    num_pool_slots: int = 0
    """Of one pool for all layers; 0: layers have slots of their own."""
    counters: Counters = field(default_factory=Counters)
    """Since load, over all layers."""
