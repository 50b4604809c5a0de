"""A loaded model with its experts offloaded: plans the budget, builds the experts' runtime, and is ready to decode."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.arrays import Array
from engine.backends.backend import Backend
from engine.backends.calibration import Calibration
from engine.backends.choice import open_backend
from engine.checkpoint.fingerprint import fingerprint
from engine.config import APPROX, AUTO, FULL_LAYER, EngineConfig, SamplingConfig
from engine.events import LoadProgress
from engine.experts.expert_runtime import ExpertRuntime
from engine.experts.step_state import StepState
from engine.plan.budget import budget_for, replanned, with_measured_workspace
from engine.plan.model_plan import ChunkNeeds
from engine.profiles.past_requests import PastRequests
from engine.profiles.predictor_store import PredictorStore
from engine.profiles.tuned_eviction import tuned_eviction
from engine.sampling.sampler import Sampler
from offload.policies.forecast.selection_predictor import SelectionPredictor
from offload.policies.inputs import PolicyInputs
from offload.slot_groups import SlotGroups


class OffloadedModel:
    """A model loaded with one configuration. `decoder` runs it; `cache` and `link` hold its counters."""

    def __init__(
        self,
        config: EngineConfig,
        folder: Path,
        on_progress: Callable[[LoadProgress], None],
        is_cancelled: Callable[[], bool],
        after_layer: Callable[[int], None] = lambda layer: None,
        always_predict: bool = False,
        check_tokenizer: Callable[[Any], None] = lambda tokenizer: None,
    ) -> None:
        """Loads and warms up. `always_predict`: also predict layers whose experts are all resident, for benches;
        `check_tokenizer` may refuse the model before a weight is read. Raises what it raises, MoeChatError,
        OffloadError, WaitCancelled, and closes everything first."""
        self.config, self._always_predict = config, always_predict
        backend, self.why_backend = open_backend(config, folder, is_cancelled)
        self.backend: Backend = backend
        self.fingerprint = fingerprint(folder)
        self.budget = budget_for(config, backend.plan, backend.needs_of, self.fingerprint)
        needs = backend.needs_of(self.budget.chunk_tok)
        self.state = StepState(is_cancelled=is_cancelled, after_layer=after_layer)
        self._runtime: ExpertRuntime | None = None
        self._needs = needs
        self.is_whole = False
        """The experts' runtime is built: the model can answer."""
        self.predictor_about = self.predictor_problem = ""
        """Of the trained predictor that is in use, and why one that is kept is not, for a person."""
        try:
            backend.load(
                self.budget,
                lambda done, total: on_progress(LoadProgress("weights", done, total)),
                is_cancelled,
                check_tokenizer,
            )
            self.loaded = backend.loaded
            self.tuned = tuned_eviction(self.fingerprint)
            self.past_requests = PastRequests(self.fingerprint, backend.plan.geometry)
            self.load_predictor = self._kept_predictor
            on_progress(LoadProgress("warm-up", 0, 0, ""))
            self._prepare(needs)
            on_progress(LoadProgress("expert slots", 0, self.budget.slot_bytes))
            self.rebuild(config, self.budget.groups)
            on_progress(LoadProgress("choosing threads", 0, 0, ""))
            self._calibrate()
        except BaseException:
            self.close()
            raise

    def _prepare(self, needs: ChunkNeeds) -> None:
        """Builds what rebuilds keep, and runs a long forward without routed experts to measure its memory. Where that
        is more than planned, plans again with fewer slots, before any is allocated. Raises BudgetError when too few are
        left."""
        backend = self.backend
        backend.prepare(self.budget, self.state)
        self.decoder, self.lookahead = backend.decoder, backend.lookahead
        num_layers = self.loaded.plan.geometry.num_layers
        self.num_predicted_layers = sum(self.lookahead.can_predict(i, i + 1) for i in range(num_layers - 1))
        measured_bytes = backend.measure_workspace(needs, self.budget)
        if measured_bytes > self.budget.workspace_bytes:
            self.budget = with_measured_workspace(
                self.config, self.loaded.plan, needs, self.budget, measured_bytes, self.fingerprint
            )

    def _kept_predictor(self, domain: str | None) -> SelectionPredictor | None:
        store = PredictorStore(self.fingerprint, self.loaded.plan.geometry)
        kept, self.predictor_problem = store.best_for(domain), store.problem
        self.predictor_about = "" if kept is None else f"trained on {kept.domain} ({kept.about})"
        return None if kept is None else kept.predictor

    def set_strategy(self, config: EngineConfig) -> None:
        """Runs under another strategy from now on, within the same bytes; weights and KV cache stay as they are, the
        expert cache is empty afterwards. `config` differs from the present one in its policies alone. Raises
        BudgetError, with nothing changed, and what `rebuild` raises: then call only `rebuild` or `close`."""
        self.budget = replanned(config, self.loaded.plan, self._needs, self.budget, self.config, self.fingerprint)
        self.rebuild(config, self.budget.groups, keeps_context=True)

    def rebuild(self, config: EngineConfig, groups: SlotGroups, *, keeps_context: bool = False) -> None:
        """Builds the experts' runtime anew, with other policies, link or slots; the expert cache and the KV cache are
        empty afterwards; with `keeps_context` the KV cache stays. If it raises, `is_whole` is False: then call only
        `rebuild` or `close`."""
        self.is_whole = False
        if self._runtime is not None:
            self._dismantle(self._runtime)
        self.config = config
        prefill = config.policies.prefill
        has_layer_staging = self.budget.has_layer_staging if prefill == AUTO else prefill == FULL_LAYER
        loaded, geometry = self.loaded, self.loaded.plan.geometry
        runtime = self._runtime = ExpertRuntime(
            *(config, geometry, loaded.store, groups, has_layer_staging, loaded.plan.ring_slots(config.policies)),
            PolicyInputs(
                geometry,
                weights=self.tuned.weights,
                load_collection=lambda: self.past_requests.collection,
                load_predictor=lambda: self.load_predictor(config.domain),
            ),
        )
        backend = self.backend
        runtime.connect(
            *(loaded.formats, loaded.hidden_dim, backend.lookahead, backend.taps, self.state, backend.bind),
            always_predict=self._always_predict,
            when_connected=backend.connected,
        )
        self.link, self.pool, self.cache, self.layers = runtime.link, runtime.pool, runtime.cache, runtime.layers
        self.prefetching, self.prefill = runtime.prefetching, runtime.prefill
        self.expert_compute_s = runtime.expert_compute_s
        if not keeps_context:
            self.decoder.cache.reset()
        self.is_whole = True

    def _calibrate(self) -> None:
        """Chooses the number of threads and, with it, each format's kernel; measures expert compute and the shortest
        steps."""
        assert self._runtime is not None, "rebuilt before"
        loaded = self.loaded
        calibration = Calibration(self.backend, self.state)
        self.threads = calibration.choose_threads(
            self.config.compute_threads, self._runtime, loaded.plan.geometry, loaded.store
        )
        for expert_format in loaded.formats:
            expert_format.choose_kernel()
        self._runtime.measure_expert_compute()
        self.expert_compute_s = self._runtime.expert_compute_s
        self.compute_floors_ms = calibration.compute_floors(self.budget.context_tok)
        """(tokens cached before it, milliseconds) of the quickest decode step, on a short context and at the longest:
        the compute alone, with every expert resident."""

    @property
    def compute_floor_ms(self) -> float:
        """Milliseconds of the shortest decode step, on a short context."""
        return self.compute_floors_ms[0][1]

    def _dismantle(self, runtime: ExpertRuntime) -> None:
        """Frees the old runtime before the new one is built, so that both are never in memory at once."""
        runtime.close()
        self.backend.unbind()
        self._runtime = None
        self.state.abandon_prefill = self.state.after_prefill = lambda: None
        del runtime
        for name in ("link", "pool", "cache", "layers", "prefetching", "prefill"):
            self.__dict__.pop(name, None)  # a rebuild that failed has not made them

    def end_request(self) -> None:
        """The answer is complete: policies that learn from requests have one more, and what they know is kept."""
        if self._runtime is not None:
            self._runtime.feed.end_request()
        self.past_requests.save()

    def set_mode(self, mode: str) -> None:
        """EXACT or APPROX from the next step on."""
        self.state.is_approx = mode == APPROX

    def greedy_ids(self, prompt: list[int], num_new_tok: int) -> tuple[list[int], Array]:
        """Greedy token ids on an empty KV cache, and the logits [vocab] at the prompt's end. For proofs and benches."""
        self.decoder.cache.reset()
        logits = self.decoder.prefill(prompt, lambda done_tok: None)
        return list(self.decoder.tokens(logits, Sampler(SamplingConfig(temperature=0.0)), num_new_tok)), logits

    def close(self) -> None:
        """Stops the link and closes the checkpoint's files. Safe to call twice."""
        if self._runtime is not None:
            self._runtime.close()
        self.backend.close()
