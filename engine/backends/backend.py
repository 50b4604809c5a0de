"""The seam between the engine and what runs a model. One folder in this room for each back end that implements it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from engine.backends.decode_loop import DecodeLoop
from engine.experts.formats import ExpertFormat
from engine.experts.layer import MoeLayer
from engine.experts.routing_tap import RoutingTap
from engine.experts.step_state import StepState
from engine.lookahead.forms import PredictionForm
from engine.lookahead.prefetching import Prefetching
from engine.plan.model_plan import ChunkNeeds, ModelPlan
from engine.sampling.defaults import ModelDefaults
from offload.budget import BudgetPlan
from offload.link.expert_source import ExpertSource
from offload.policies.forecast import Forecaster
from offload.residency.cache import ExpertCache


class ExpertStore(ExpertSource, Protocol):
    """Where the experts' bytes are read from."""

    @property
    def num_direct_layers(self) -> int:
        """Layers whose experts are read straight into slots; the others are converted on the way."""
        ...

    @property
    def reads(self) -> str:
        """How files are read, for a person: `direct`, or `buffered` with the reason."""
        ...

    def close(self) -> None:
        """Closes the files. Safe to call twice."""
        ...


class LoadedModel(Protocol):
    """A model without routed experts in memory, and what is needed to serve them."""

    @property
    def folder(self) -> Path:
        """The checkpoint's folder, or its file."""
        ...

    @property
    def model_type(self) -> str: ...

    @property
    def number_format(self) -> str:
        """The formats that weights are stored and computed in, for reports."""
        ...

    @property
    def tokenizer(self) -> Any: ...

    @property
    def defaults(self) -> ModelDefaults: ...

    @property
    def end_token_sources(self) -> Sequence[Mapping[str, Any]]:
        """Configurations whose `eos_token_id` ends an answer."""
        ...

    @property
    def formats(self) -> Sequence[ExpertFormat]:
        """One per MoE layer."""
        ...

    @property
    def store(self) -> ExpertStore: ...

    @property
    def plan(self) -> ModelPlan: ...

    @property
    def hidden_dim(self) -> int: ...

    @property
    def vocabulary_tok(self) -> int: ...

    def holds_expert(self, layer: int, expert: int, slot: memoryview) -> bool:
        """Whether a slot's bytes are what the files say the expert is, read by another way than the link's."""
        ...

    def not_finite(self, on_tensor: Callable[[int, int], None]) -> list[str]:
        """The names of stored tensors that hold NaN or infinite values. `on_tensor(done, total)` is called before each
        and may raise to end it."""
        ...

    def expert_files(self) -> list[Path]:
        """The files with routed experts: they are read while the model answers."""
        ...

    def notices(self) -> list[str]:
        """What the user should know about the checkpoint."""
        ...


class Lookahead(Forecaster, Protocol):
    """A Forecaster that can say how it predicts."""

    def forms(self) -> list[PredictionForm]:
        """Per MoE layer, how its experts are predicted."""
        ...


class Backend(Protocol):
    """Runs one model. Made by inspecting it, without reading a weight; then `load`, then `prepare`, then it decodes."""

    @property
    def name(self) -> str:
        """As `EngineConfig.backend` takes it."""
        ...

    @property
    def label(self) -> str:
        """The library that computes, with its version."""
        ...

    @property
    def plan(self) -> ModelPlan: ...

    @property
    def loaded(self) -> LoadedModel:
        """From `load` on."""
        ...

    @property
    def decoder(self) -> DecodeLoop:
        """From `prepare` on."""
        ...

    @property
    def lookahead(self) -> Lookahead:
        """From `prepare` on."""
        ...

    @property
    def taps(self) -> Sequence[RoutingTap]:
        """From `prepare` on; one per MoE layer."""
        ...

    def needs_of(self, chunk_tok: int) -> ChunkNeeds:
        """The KV cache and the workspace by the length of a prefill chunk."""
        ...

    def forms(self) -> list[PredictionForm]:
        """Per MoE layer, how its experts will be predicted; before loading."""
        ...

    def load(
        self,
        budget: BudgetPlan,
        on_read: Callable[[int, int], None],
        is_cancelled: Callable[[], bool],
        check_tokenizer: Callable[[Any], None],
    ) -> None:
        """Reads everything but the routed experts. `on_read(done, total)` counts bytes and may be called from other
        threads; `check_tokenizer` is called before any weight is read, and may refuse the model by raising. Raises
        CheckpointError, WaitCancelled."""
        ...

    def prepare(self, budget: BudgetPlan, state: StepState) -> None:
        """Allocates the KV cache, and finds what prediction needs. Raises UnsupportedModelError."""
        ...

    def measure_workspace(self, needs: ChunkNeeds, budget: BudgetPlan) -> int:
        """Runs the largest forward once, before slots are allocated; bytes of workspace that it takes, at least what is
        planned."""
        ...

    def bind(self, number: int, layer: MoeLayer) -> None:
        """Puts a MoE layer in place of the model's own."""
        ...

    def connected(self, cache: ExpertCache, prefetching: Prefetching) -> None:
        """All layers are bound, and which predictions will be asked for is settled."""
        ...

    def unbind(self) -> None:
        """Lets go of every MoE layer and of its slots."""
        ...

    def set_threads(self, num_threads: int) -> None:
        """Threads that compute."""
        ...

    @property
    def num_threads(self) -> int: ...

    def time_step(self, past_tok: int) -> int:
        """One decode step behind `past_tok` tokens of any content; returns how many there were: 0 where the cache
        cannot be given a length. Leaves the cache empty."""
        ...

    def close(self) -> None:
        """Frees what `load` and `prepare` took. Safe to call twice."""
        ...
