"""The state all MoE layers share about the step that runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from offload.replay.trace_writer import TraceWriter


@dataclass(slots=True)
class StepState:
    """The kind of the running step, and what is measured of it. Mutated by the engine's thread."""

    is_decode: bool = False
    is_approx: bool = False
    is_calibrating: bool = False
    """Experts are computed with slots of their layer, whatever these hold: the time of a step that misses nothing."""
    is_cancelled: Callable[[], bool] = field(default=lambda: False)
    after_layer: Callable[[int], None] = field(default=lambda layer: None)
    goes_by_layers: bool = False
    """Somebody looks at the model between layers: no back end may compute several of them at once."""
    abandon_prefill: Callable[[], None] = field(default=lambda: None)
    """Gives up what prefill has on its way; called when a forward was left half-way."""
    after_prefill: Callable[[], None] = field(default=lambda: None)
    """Called when a whole prompt is computed, before its answer is decoded."""
    link_wait_s: float = 0.0
    """Decode time spent waiting for the link, monotonic."""
    forward_s: float = 0.0
    """Decode time spent in the model's forward, all of it, monotonic."""
    overhead_s: float = 0.0
    """Of that, time that is neither the model's arithmetic nor a wait: routing read out, residency and policy, the next
    layers' routers asked, bookkeeping, snapshots; monotonic."""
    substituted: int = 0
    """Substitutions, monotonic: a token whose forward raised it has approximate KV."""
    recorder: TraceWriter | None = None
    """Records every layer's routing while it is set."""

    @contextmanager
    def watched(self, watch: Callable[[int], None]) -> Iterator[None]:
        """Context: `watch(layer)` is called after every layer, as soon as it is computed."""
        kept = self.after_layer, self.goes_by_layers

        def after_layer(layer: int) -> None:
            watch(layer)
            kept[0](layer)

        self.after_layer, self.goes_by_layers = after_layer, True
        try:
            yield
        finally:
            self.after_layer, self.goes_by_layers = kept
