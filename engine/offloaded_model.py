"""A loaded model with its experts offloaded: the byte budget planned, the machinery put together, ready to decode."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from engine import machine
from engine.config import APPROX, EngineConfig, SamplingConfig
from engine.decode import Decoder
from engine.events import LoadProgress
from engine.expert_forward import ExpertPlant, MoeLayer, ProbedLayer
from engine.kv_cache import KvCache
from engine.lookahead import FeedProbe, Lookahead, find_router
from engine.model_loading import ModelPlan, load_model
from engine.planning import STAGING_SLOTS, budget_for
from engine.router_tap import RouterTap
from engine.sampling import Sampler
from engine.step_state import StepState
from engine.threads import choose_threads
from offload.budget import BudgetPlan
from offload.cache import ExpertCache
from offload.eviction import make_eviction
from offload.link import Link
from offload.prefetch import make_prefetcher
from offload.slots import SlotPool
from offload.staging import StagingRing
from offload.substitution import make_substitution


class OffloadedModel:
    """Everything one configuration came to. `decoder` runs it; `cache` and `link` tell what happens."""

    def __init__(
        self,
        config: EngineConfig,
        folder: Path,
        on_progress: Callable[[LoadProgress], None],
        is_cancelled: Callable[[], bool],
        after_layer: Callable[[int], None] = lambda layer: None,
        always_predict: bool = False,
    ) -> None:
        """Loads and warms up. `always_predict`: also where nothing can be absent, for benches. Raises MoeChatError,
        OffloadError, LoadCancelled; nothing is left running then."""
        self.config, self._always_predict = config, always_predict
        torch.set_num_threads(config.compute_threads or machine.num_cores())
        self.budget: BudgetPlan
        self.loaded = load_model(
            folder,
            config.prefill_chunk_tok,
            self._plan,
            lambda done, total: on_progress(LoadProgress("weights", done, total)),
            is_cancelled,
        )
        self.state = StepState(is_cancelled=is_cancelled, after_layer=after_layer)
        self.link = Link(self.loaded.store, config.link_threads, config.link_bytes_per_s)
        try:
            on_progress(LoadProgress("expert slots", 0, self.budget.slot_bytes))
            self._allocate()
            on_progress(LoadProgress("warm-up", 0, 0, ""))
            self._connect()
        except BaseException:
            self.close()
            raise

    def _plan(self, plan: ModelPlan) -> None:
        self.budget = budget_for(self.config, plan)

    def _allocate(self) -> None:
        """Device memory, all of it: slots and staging here, the KV cache at the warm-up that follows."""
        config, geometry = self.config, self.loaded.plan.geometry
        expert_bytes = [layer.expert_bytes for layer in geometry.layers]
        self.pool = SlotPool(self.budget.slots_per_layer, expert_bytes)
        self.staging = StagingRing(STAGING_SLOTS, max(expert_bytes), self.link)
        self.cache = ExpertCache(geometry, self.pool, self.link, make_eviction(config.eviction, geometry))
        kv = KvCache(
            self.loaded.model, self.budget.context_tok, config.prefill_chunk_tok, self.loaded.plan.kv.uses_library_cache
        )
        self.decoder = Decoder(self.loaded.model, kv, self.state, self.budget.context_tok, config.prefill_chunk_tok)

    def _connect(self) -> None:
        """Puts our MoE layers in place of the experts modules' own forward."""
        config, loaded = self.config, self.loaded
        routers = [find_router(loaded.model, withheld.name) for withheld in loaded.modules]
        lookahead = self._look_ahead(routers)
        plant = ExpertPlant(
            cache=self.cache,
            pool=self.pool,
            staging=self.staging,
            prefetcher=make_prefetcher(config.prefetch, config.prefetch_depth),
            substitution=make_substitution("boundary", config.alpha),
            lookahead=lookahead,
            state=self.state,
        )
        self.plant, self.layers = plant, list[MoeLayer]()
        for number, geometry in enumerate(loaded.plan.geometry.layers):
            tap = RouterTap(routers[number], lookahead.rankings[number], geometry, self.state)
            layer = MoeLayer(number, geometry, loaded.formats[number], tap, plant, self._does_predict(number, plant))
            loaded.modules[number].module.offload_layer = layer  # type: ignore[assignment]
            self.layers.append(layer)
        self.num_predicted_layers = sum(lookahead.can_predict(number) for number in range(len(self.layers)))
        hidden_dim = int(loaded.model.config.get_text_config().hidden_size)
        plant.expert_compute_s = self.layers[0].measure_expert_compute_s(hidden_dim)

    def _does_predict(self, number: int, plant: ExpertPlant) -> bool:
        """Whether layer `number` looks ahead: not where every expert of the next one is resident for good."""
        if not plant.prefetcher.needs_prediction or not plant.lookahead.can_predict(number):
            return False
        following = number + 1
        can_be_absent = self.budget.slots_per_layer[following] < self.loaded.plan.geometry.layers[following].num_experts
        return can_be_absent or self._always_predict

    def _look_ahead(self, routers: list[torch.nn.Module | None]) -> Lookahead:
        """Short forwards with experts that return zeros: find the routers' feeds and the number of threads, and touch
        the
        KV cache's memory."""
        for withheld in self.loaded.modules:
            withheld.module.offload_layer = ProbedLayer()  # type: ignore[assignment]
        with torch.inference_mode():
            with FeedProbe(self.loaded.model, routers) as probe:
                self._warm_up(4)
            lookahead = Lookahead(probe.feeds())
            self._warm_up(1)
            lookahead.prepare()
            self.threads = choose_threads(self.config.compute_threads, lambda: self._warm_up(1))
        return lookahead

    def _warm_up(self, num_tok: int) -> None:
        kv = self.decoder.cache
        self.loaded.model(
            input_ids=torch.zeros(1, num_tok, dtype=torch.long), cache=kv.cache, use_cache=True, logits_to_keep=1
        )
        kv.reset()

    def set_mode(self, mode: str) -> None:
        """EXACT or APPROX from the next step on."""
        self.state.is_approx = mode == APPROX

    def greedy_ids(self, prompt: list[int], num_new_tok: int) -> tuple[list[int], torch.Tensor]:
        """Greedy token ids on an empty KV cache, and the logits [vocab] at the prompt's end. For proofs and benches."""
        self.decoder.cache.reset()
        logits = self.decoder.prefill(prompt, lambda done_tok: None)
        first = logits.clone()
        return list(self.decoder.tokens(logits, Sampler(SamplingConfig(temperature=0.0)), num_new_tok)), first

    def close(self) -> None:
        """Stops the link and closes the checkpoint's files. Safe to call twice."""
        self.link.close()
        self.loaded.store.close()
