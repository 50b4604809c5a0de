"""The strategies that `bench strategies` compares, each with its slots, and the rows of its tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.backends.offloaded_model import OffloadedModel
from engine.commands.bench.report import VariantRow
from engine.config import AUTO, FULL_LAYER, RING, STRATEGIES, EngineConfig, format_bytes
from offload.geometry import Geometry, layer_staging_bytes, pool_bytes
from offload.slot_groups import SlotGroups


@dataclass(frozen=True, slots=True)
class StrategySetup:
    """A strategy with the slots it gets."""

    config: EngineConfig
    groups: SlotGroups
    expert_bytes: int
    """Of decode slots and prefill's staging."""
    device_bytes: int
    """The same, with resident weights and KV cache: all that stands on the device."""


@dataclass(frozen=True, slots=True)
class StrategyRow:
    """What was measured of one strategy."""

    measured: VariantRow
    setup: StrategySetup
    modelled_tpot_ms: float

    def as_dict(self) -> dict[str, object]:
        """JSON-serialisable."""
        return {
            **self.measured.as_dict(),
            "modelled_tpot_ms": self.modelled_tpot_ms,
            "slots": list(self.setup.groups.slots),
            "expert_bytes_on_device": self.setup.expert_bytes,
            "device_bytes": self.setup.device_bytes,
        }


def setups(
    engine: OffloadedModel, base: EngineConfig, slots: Sequence[int], moved_slots: Sequence[int]
) -> tuple[dict[str, StrategySetup], dict[str, StrategySetup]]:
    """By strategy: as published, and all at equal device bytes. `slots` per layer is what strategies without a fixed
    number of their own get; `moved_slots` the same, moved between layers by profiles."""
    published, equal = {}, {}
    for name in STRATEGIES:
        config = base.with_strategy(name)
        published[name] = _setup(engine, config, _groups(config, engine, slots, moved_slots, sum(slots)))
        if config.policies.prefill in (AUTO, FULL_LAYER):
            config = replace(config, prefill=RING)
        plan = engine.loaded.plan
        num_slots = sum(slots) + plan.staging_slots - plan.ring_slots(config.policies)
        equal[name] = _setup(engine, config, _groups(config, engine, slots, moved_slots, num_slots, is_equal=True))
    return published, equal


def _groups(
    config: EngineConfig,
    engine: OffloadedModel,
    slots: Sequence[int],
    moved_slots: Sequence[int],
    num_slots: int,
    *,
    is_equal: bool = False,
) -> SlotGroups:
    geometry, cache = engine.loaded.plan.geometry, config.policies.cache
    if cache.is_fixed and not is_equal:
        return cache.fewest(geometry)
    if cache.is_pool:
        return SlotGroups.pool(min(num_slots, geometry.num_experts_total), geometry.num_layers)
    return SlotGroups.per_layer(moved_slots if cache.is_nonuniform else slots)


def _setup(engine: OffloadedModel, config: EngineConfig, groups: SlotGroups) -> StrategySetup:
    geometry, budget = engine.loaded.plan.geometry, engine.budget
    expert_bytes = groups.total_bytes(geometry) + _staging_bytes(engine, config, geometry)
    return StrategySetup(config, groups, expert_bytes, expert_bytes + budget.resident_bytes + budget.kv_bytes)


def _staging_bytes(engine: OffloadedModel, config: EngineConfig, geometry: Geometry) -> int:
    prefill = config.policies.prefill
    if prefill == FULL_LAYER or (prefill == AUTO and engine.budget.has_layer_staging):
        return layer_staging_bytes(geometry)
    return pool_bytes((engine.loaded.plan.ring_slots(config.policies),), (geometry.largest_expert_bytes,))


def rows_as_lines(rows: Sequence[StrategyRow]) -> list[str]:
    """A table."""
    head = (
        f"  {'strategy':<15}{'TPOT':>7}{'p95':>7}{'TTFT':>7}{'speedup':>9}{'modelled':>10}{'(TPOT)':>8}{'x limit':>9}"
        f"{'hits':>7}{'late':>6}{'loads/tok':>11}{'MB/tok':>8}{'useful':>8}{'waits':>7}{'experts':>10}{'device':>10}"
        "  tokens"
    )
    return [head, *map(_line, rows)]


def _line(row: StrategyRow) -> str:
    measured, counters = row.measured, row.measured.counters
    issued = counters.prefetch_issued
    useful = f"{counters.prefetch_useful / issued:.0%}" if issued else "–"
    hits = f"{counters.hit_rate:.1%}" if counters.hit_rate is not None else "–"
    late = f"{counters.late / counters.routed:.0%}" if counters.routed else "–"
    megabytes = counters.bytes_loaded / max(measured.num_tok, 1) / 1e6
    return (
        f"  {measured.name:<15}{measured.tpot_mean_ms:7.1f}{measured.tpot_p95_ms:7.1f}{measured.ttft_ms:7.0f}"
        f"{measured.speedup:8.2f}x{measured.modelled_speedup or 0:9.2f}x{row.modelled_tpot_ms:8.1f}"
        f"{measured.times_the_limit:8.2f}x{hits:>7}{late:>6}{measured.loads_per_tok:11.1f}{megabytes:8.1f}{useful:>8}"
        f"{measured.link_wait_rate:7.0%}{format_bytes(row.setup.expert_bytes):>10}"
        f"{format_bytes(row.setup.device_bytes):>10}  " + ("equal" if measured.is_exact else "differ")
    )
