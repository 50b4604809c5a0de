"""What a strategy consists of."""

from __future__ import annotations

from dataclasses import dataclass, replace

from offload.policies.slot_planning.device_cache import SLOT_PLANS, DeviceCache

AUTO, FULL_LAYER, RING, PIPELINE = "auto", "full-layer", "ring", "pipeline"
PREFILL_PATHS = (AUTO, FULL_LAYER, RING, PIPELINE)
"""How prefill gets absent experts. Full-layer: whole layers through two buffers. Ring: the experts that are routed to,
through three buffers. Pipeline: the same through two, so that one is copied while one is computed. Auto: whole layers
where two buffers are affordable, else the ring."""

RING_SLOTS = 3
"""Of the ring; the pipeline has two."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """A bundle of plug-ins, by their names; see the registries of `offload.policies`."""

    name: str
    meaning: str
    """For a person, one line."""
    prefill: str
    slots: str
    eviction: str
    prefetch: str
    substitution: str = "boundary"
    """In APPROX mode."""

    @property
    def cache(self) -> DeviceCache:
        """The rule by which decode slots are shared out."""
        return SLOT_PLANS[self.slots]

    @property
    def staging_slots(self) -> int:
        """Slots of prefill's staging ring."""
        return 2 if self.prefill == PIPELINE else RING_SLOTS

    def overridden(
        self, prefill: str | None, slots: str | None, eviction: str | None, prefetch: str | None
    ) -> Strategy:
        """With the parts that are not None in place of its own."""
        return replace(
            self,
            prefill=prefill or self.prefill,
            slots=slots or self.slots,
            eviction=eviction or self.eviction,
            prefetch=prefetch or self.prefetch,
        )

    def changes(self, own: Strategy) -> tuple[str, ...]:
        """The parts in which this one differs from `own`, for a person."""
        names = ("prefill", "slots", "eviction", "prefetch")
        return tuple(f"{name} {getattr(self, name)}" for name in names if getattr(self, name) != getattr(own, name))
