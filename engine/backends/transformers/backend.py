"""The transformers back end: any architecture whose experts have the library's interface, bit-equal to the library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from engine.backends.backend import Backend
from engine.backends.transformers.decoder import Decoder
from engine.backends.transformers.experts_interface import ProbedLayer
from engine.backends.transformers.inspection import inspect_model
from engine.backends.transformers.kv_cache import KvCache
from engine.backends.transformers.loading import LoadedModel, load_model
from engine.backends.transformers.workspace_trial import measure_workspace
from engine.errors import MoeChatError, UnsupportedModelError
from engine.experts.layer import MoeLayer
from engine.experts.router_tap import RouterTap
from engine.experts.step_state import StepState
from engine.lookahead.feeds import FeedProbe, find_router
from engine.lookahead.forms import PredictionForm
from engine.lookahead.lookahead import Lookahead
from engine.lookahead.prefetching import Prefetching
from engine.plan import machine
from engine.plan.model_plan import ChunkNeeds
from offload.budget import BudgetPlan
from offload.errors import OffloadError
from offload.residency.cache import ExpertCache


class TransformersBackend:
    """See Backend."""

    name = "transformers"
    label = f"transformers {transformers.__version__}, torch {torch.__version__}"

    def __init__(self, folder: Path, is_cancelled: Callable[[], bool], num_threads: int | None = None) -> None:
        """Inspects a checkpoint folder. `num_threads`: of the inspection, and until others are set; None: every core.
        Raises UnsupportedModelError, CheckpointError, WaitCancelled."""
        torch.set_num_threads(num_threads or machine.num_cores())
        self._inspected = inspect_model(folder, is_cancelled)
        self.plan = self._inspected.plan
        self.needs_of: Callable[[int], ChunkNeeds] = self._inspected.needs_of

    def forms(self) -> list[PredictionForm]:
        """See Backend."""
        return self._inspected.forms_of()

    def load(
        self,
        budget: BudgetPlan,
        on_read: Callable[[int, int], None],
        is_cancelled: Callable[[], bool],
        check_tokenizer: Callable[[Any], None],
    ) -> None:
        """See Backend."""
        self.loaded: LoadedModel = load_model(
            self._inspected, on_read, is_cancelled, check_tokenizer, budget.keeps_files_cached
        )
        del self._inspected, self.needs_of  # and with them the model on the meta device

    def prepare(self, budget: BudgetPlan, state: StepState) -> None:
        """See Backend. A warm-up touches the KV cache's memory and tells where each router's input comes from."""
        loaded, self._state = self.loaded, state
        kv = KvCache(loaded.model, budget.context_tok, budget.chunk_tok, loaded.uses_library_cache)
        self.decoder = Decoder(loaded.model, kv, state, budget.context_tok, budget.chunk_tok)
        routers = [find_router(loaded.model, withheld.name) for withheld in loaded.modules]
        self.unbind()
        with torch.inference_mode():
            with FeedProbe(loaded.model, routers) as probe:
                self._first_forward()
            self.lookahead = Lookahead(probe.feeds())
            self._warm_up(1)
            self.lookahead.prepare()
        layers = loaded.plan.geometry.layers
        self.taps: Sequence[RouterTap] = [
            RouterTap(router, ranking, layer, state)
            for router, ranking, layer in zip(routers, self.lookahead.rankings, layers, strict=True)
        ]

    def _first_forward(self) -> None:
        """The first forward on real values. Raises UnsupportedModelError where the library fails in it."""
        try:
            self._warm_up(4)
        except (MoeChatError, OffloadError, MemoryError):
            raise
        except Exception as error:  # whatever the library's forward raises
            text = f"{type(error).__name__}: {str(error)[:300]}"
            raise UnsupportedModelError(
                f"{self.loaded.model_type!r} cannot be run: its forward fails ({text}).",
                "A value may be missing in config.json, or not fit the others; fetch it again.",
            ) from error

    def _warm_up(self, num_tok: int) -> None:
        kv, ids = self.decoder.cache, torch.zeros(1, num_tok, dtype=torch.long)
        self.loaded.model(input_ids=ids, cache=kv.cache, use_cache=True, logits_to_keep=1)
        kv.reset()

    def measure_workspace(self, needs: ChunkNeeds, budget: BudgetPlan) -> int:
        """See Backend."""
        return measure_workspace(self.decoder, self.loaded.model, self.loaded.modules, needs, budget)

    def bind(self, number: int, layer: MoeLayer) -> None:
        """See Backend. The experts module's own forward calls the layer."""
        self.loaded.modules[number].module.offload_layer = layer  # type: ignore[assignment]

    def connected(self, cache: ExpertCache, prefetching: Prefetching) -> None:
        """See Backend."""

    def unbind(self) -> None:
        """See Backend."""
        for withheld in self.loaded.modules:
            withheld.module.offload_layer = ProbedLayer()  # type: ignore[assignment]

    def set_threads(self, num_threads: int) -> None:
        """See Backend."""
        torch.set_num_threads(num_threads)

    @property
    def num_threads(self) -> int:
        """See Backend."""
        return torch.get_num_threads()

    def time_step(self, past_tok: int) -> int:
        """See Backend."""
        kv = self.decoder.cache
        assumed_tok = kv.assume_length(past_tok) if past_tok else 0
        try:
            ids = torch.zeros(1, 1, dtype=torch.long)
            with torch.inference_mode():
                self.loaded.model(input_ids=ids, cache=kv.cache, use_cache=True, logits_to_keep=1)
            return assumed_tok
        finally:
            kv.reset()

    def close(self) -> None:
        """See Backend."""
        if hasattr(self, "loaded"):
            self.loaded.store.close()


def require_transformers(backend: Backend, what: str) -> TransformersBackend:
    """The back end, if it is this one. Raises UnsupportedModelError for `what`, which compares with the library."""
    if isinstance(backend, TransformersBackend):
        return backend
    raise UnsupportedModelError(
        f"{what} looks into the library's modules, and the model runs on {backend.label}.",
        "Run it with --backend transformers.",
    )
