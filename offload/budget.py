"""Splits one byte budget over everything the engine holds, before anything is allocated; refuses one too small.

A plan never exceeds its budget. The caller's bytes for runtime, resident weights, KV cache and workspace are used as
given; slots and staging are whole pages. The error names the smallest budget that works.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from offload.errors import BudgetError
from offload.geometry import Geometry, layer_staging_bytes, pool_bytes
from offload.policies.slot_planning.device_cache import PER_LAYER, DeviceCache
from offload.slot_groups import SlotGroups

if TYPE_CHECKING:
    from offload.policies.slot_planning.nonuniform import Move

MIB = 2**20
DEFAULT_CONTEXT_TOK = 8192
"""The context planned when none is asked for, if the model's own is not smaller."""
MIN_DEFAULT_CONTEXT_TOK = 512
"""A default context is shrunk to fit the budget, but not below this."""
LAYER_STAGING_SHARE = 0.25
"""The most that two buffers of a full layer may take of the bytes for experts on the device."""
CACHED_SHARE = 1 / 16
"""The most that a model's experts may take of the available memory for their files to stay in the page cache."""
DEFAULT_BUDGET_SHARE = 0.6
"""Share of the available memory taken when neither a budget nor a residency is given."""


@dataclass(frozen=True, slots=True)
class BudgetRequest:
    """What is asked for, and the bytes of each part."""

    geometry: Geometry
    memory_bytes: int | None
    """The budget; exclusive with `residency`. Both None: a share of what is available."""
    residency: float | None
    """Share of each layer's routed experts to give slots to, in (0, 1]."""
    runtime_bytes: int
    """What the process holds before the model."""
    resident_bytes: int
    """Weights that never move."""
    kv_bytes_per_tok: int
    kv_fixed_bytes: int
    """KV cache and other states that do not grow with the context."""
    workspace_bytes: int
    """The part of the workspace that does not grow with the context."""
    staging_slots: int
    """Slots of prefill's staging ring, each as big as the biggest expert. There is no ring where layers are staged."""
    context_tok: int | None
    """The context asked for, which is given in full or refused. None: up to 8192 tokens, as the budget allows."""
    model_context_tok: int
    available_bytes: int
    """The most memory that the process may use."""
    workspace_bytes_per_tok: int = 0
    """Workspace for every token of the context: scores and masks of attention."""
    chunk_tok: int = 0
    """Tokens of the prefill chunks that KV cache and workspace are given for."""
    layer_staging: bool | None = False
    """Two buffers of a full layer for prefill, in place of the ring. None: if they take at most a quarter of the bytes
    for experts on the device, leave 2k slots a layer, and don't shorten the context."""
    cache: DeviceCache = PER_LAYER
    """How slots are shared out, and whether their number is fixed."""


@dataclass(frozen=True, slots=True)
class BudgetPlan:
    """The split of the budget. `total_bytes` <= `budget_bytes`."""

    budget_bytes: int
    runtime_bytes: int
    resident_bytes: int
    kv_bytes: int
    slot_bytes: int
    """All decode slots, page padding included."""
    staging_bytes: int
    workspace_bytes: int
    groups: SlotGroups
    context_tok: int
    num_experts_total: int
    chunk_tok: int = 0
    """Tokens of a prefill chunk."""
    has_layer_staging: bool = False
    """`staging_bytes` are two buffers of a full layer, not the ring."""
    keeps_files_cached: bool = False
    """No budget was named and the experts are small against the available memory: they are read through the page cache
    and stay there, outside this plan, until the system needs the memory. The next start finds them there."""
    slot_moves: tuple[Move, ...] = ()
    """How the slots came to differ from a uniform share."""

    @property
    def slots_per_layer(self) -> tuple[int, ...]:
        """Each layer's share of the slots; they add up to the slots there are."""
        return self.groups.shares

    @property
    def uniform_slots(self) -> tuple[int, ...]:
        """Slots per group before any were moved."""
        slots = list(self.groups.slots)
        for move in self.slot_moves:
            slots[move.donor] += move.donor_slots
            slots[move.receiver] -= move.receiver_slots
        return tuple(slots)

    @property
    def parts(self) -> tuple[tuple[str, int], ...]:
        """(name, bytes) for a person; they add up to `total_bytes`."""
        return (
            ("runtime", self.runtime_bytes),
            ("resident weights", self.resident_bytes),
            ("KV cache", self.kv_bytes),
            ("expert slots", self.slot_bytes),
            ("prefill staging", self.staging_bytes),
            ("workspace", self.workspace_bytes),
        )

    @property
    def total_bytes(self) -> int:
        """What is planned to be held."""
        return sum(num_bytes for _, num_bytes in self.parts)

    @property
    def headroom_bytes(self) -> int:
        """Bytes of the budget left over: less than one expert, unless all of them fit."""
        return self.budget_bytes - self.total_bytes

    @property
    def residency_rate(self) -> float:
        """Slots over routed experts."""
        return self.groups.num_slots / self.num_experts_total if self.num_experts_total else 1.0


def plan_budget(request: BudgetRequest) -> BudgetPlan:
    """Split the budget. Raises BudgetError when it cannot be kept, with `needed_bytes` where a bigger one would do."""
    if request.layer_staging is None:
        return _plan_best_staging(request)
    if request.memory_bytes is not None and request.residency is not None:
        raise BudgetError("A memory budget and a residency contradict each other.", "Give one of them.")
    if request.memory_bytes is not None and request.memory_bytes > request.available_bytes:
        available = _mib(request.available_bytes, up=False)
        raise BudgetError(
            f"A budget of {_mib(request.memory_bytes)} was asked for, and {available} are available.",
            "Ask for less, or close other programs.",
        )
    if request.residency is not None:
        slots = _slots_of_share(request, request.residency)
        plan = _with_context(request, slots, request.available_bytes)
        return replace(plan, budget_bytes=plan.total_bytes)
    budget_bytes = request.memory_bytes if request.memory_bytes is not None else _default_bytes(request)
    plan = _with_context(request, request.cache.fewest(request.geometry), budget_bytes)
    groups = request.cache.spread(request.geometry, budget_bytes - plan.total_bytes)
    return _plan(request, groups, plan.context_tok, budget_bytes)


def _plan_best_staging(request: BudgetRequest) -> BudgetPlan:
    """Full layers staged if that is affordable; else, or if everything is resident anyhow, the ring."""
    ring = plan_budget(replace(request, layer_staging=False))
    if ring.groups.num_slots == ring.num_experts_total:
        return ring
    try:
        staged = plan_budget(replace(request, layer_staging=True))
    except BudgetError:
        return ring
    is_affordable = (
        staged.staging_bytes <= LAYER_STAGING_SHARE * (staged.slot_bytes + staged.staging_bytes)
        and staged.context_tok == ring.context_tok
        and all(
            slots >= min(2 * layer.top_k, layer.num_experts)
            for slots, layer in zip(staged.groups.shares, request.geometry.layers, strict=True)
        )
    )
    return staged if is_affordable else ring


def _plan(request: BudgetRequest, groups: SlotGroups, context_tok: int, budget_bytes: int) -> BudgetPlan:
    ring_bytes = pool_bytes((request.staging_slots,), (request.geometry.largest_expert_bytes,))
    return BudgetPlan(
        budget_bytes=budget_bytes,
        runtime_bytes=request.runtime_bytes,
        resident_bytes=request.resident_bytes,
        kv_bytes=request.kv_fixed_bytes + request.kv_bytes_per_tok * context_tok,
        slot_bytes=groups.total_bytes(request.geometry),
        staging_bytes=layer_staging_bytes(request.geometry) if request.layer_staging else ring_bytes,
        workspace_bytes=request.workspace_bytes + request.workspace_bytes_per_tok * context_tok,
        groups=groups,
        context_tok=context_tok,
        num_experts_total=request.geometry.num_experts_total,
        chunk_tok=request.chunk_tok,
        has_layer_staging=bool(request.layer_staging),
        keeps_files_cached=request.memory_bytes is None
        and request.geometry.expert_bytes_total <= CACHED_SHARE * request.available_bytes,
    )


def _default_bytes(request: BudgetRequest) -> int:
    """60 % of what is available, or what holds everything if that is less."""
    whole = _plan(request, request.cache.whole(request.geometry), _largest_context(request), 0)
    return min(int(request.available_bytes * DEFAULT_BUDGET_SHARE), whole.total_bytes)


def _largest_context(request: BudgetRequest) -> int:
    """The context asked for, else the default one. Raises BudgetError when the model cannot have it."""
    if request.context_tok is None:
        return min(request.model_context_tok, DEFAULT_CONTEXT_TOK)
    if not 1 <= request.context_tok <= request.model_context_tok:
        raise BudgetError(
            f"A context of {request.context_tok} tokens was asked for, and the model can have 1 to"
            f" {request.model_context_tok}.",
            "Ask for a context the model was made for.",
        )
    return request.context_tok


def _with_context(request: BudgetRequest, groups: SlotGroups, limit_bytes: int) -> BudgetPlan:
    """The plan with these slots and the longest allowed context that stays within the limit. Raises BudgetError."""
    context_tok = _largest_context(request)
    plan = _plan(request, groups, context_tok, limit_bytes)
    bytes_per_tok = request.kv_bytes_per_tok + request.workspace_bytes_per_tok
    if plan.headroom_bytes < 0 and request.context_tok is None and bytes_per_tok:
        context_tok += plan.headroom_bytes // bytes_per_tok
        context_tok = max(context_tok, min(request.model_context_tok, MIN_DEFAULT_CONTEXT_TOK))
        plan = _plan(request, groups, context_tok, limit_bytes)
    if plan.headroom_bytes < 0:
        raise _too_small(request, plan)
    return plan


def _too_small(request: BudgetRequest, plan: BudgetPlan) -> BudgetError:
    needed_bytes = -(-plan.total_bytes // MIB) * MIB
    split = ", ".join(f"{name} {_mib(num_bytes)}" for name, num_bytes in plan.parts if num_bytes)
    message = (
        f"With {plan.groups.in_words()} and a context of {plan.context_tok} tokens, {_mib(needed_bytes)} are needed"
        f" ({split}), and there are {_mib(plan.budget_bytes, up=False)}."
    )
    if needed_bytes > request.available_bytes:
        hint = f"{_mib(request.available_bytes, up=False)} are available: close other programs, or take a smaller model"
    else:
        hint = f"The smallest budget that works is {_mib(needed_bytes)}: --memory {needed_bytes // MIB}MiB"
    hint += ", or ask for a shorter context." if request.context_tok is not None else "."
    return BudgetError(message, hint, needed_bytes)


def _slots_of_share(request: BudgetRequest, residency: float) -> SlotGroups:
    """`residency` of the experts. Raises BudgetError when that is less than a group needs."""
    if not 0 < residency <= 1:
        raise BudgetError(
            f"A residency of {residency:g} was asked for.", "It is a share: above 0, and at most 1 (100%)."
        )
    groups = request.cache.of_share(request.geometry, residency)
    if request.cache.has_enough(request.geometry, groups):
        return groups
    top_k = max(layer.top_k for layer in request.geometry.layers)
    raise BudgetError(
        f"{residency:.1%} of the experts come to {groups.in_words()}; the router picks {top_k} experts at a"
        " time, and one slot more than that is needed.",
        f"The smallest share that works is --residency {_smallest_percent(request):g}%.",
    )


def _smallest_percent(request: BudgetRequest) -> float:
    """The smallest residency that is enough, to a tenth of a percent."""
    for percent in (permille / 10 for permille in range(1, 1000)):
        if request.cache.has_enough(request.geometry, request.cache.of_share(request.geometry, percent / 100)):
            return percent
    return 100.0


def _mib(num_bytes: int, *, up: bool = True) -> str:
    """Bytes for a person, in whole MiB (the unit the advice is given in)."""
    return f"{-(-num_bytes // MIB) if up else num_bytes // MIB:,} MiB"
