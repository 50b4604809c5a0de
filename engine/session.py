"""One loaded model and the answers it gives: planning, assembly, and the life of a turn. Runs in the engine's thread."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

import torch

from engine import machine
from engine.api import Submit
from engine.config import APPROX, DEMO_MODEL, EngineConfig, SamplingConfig, format_bytes
from engine.conversation import TextStream, check_fits, common_prefix, encode, end_tokens
from engine.decode import Decoder
from engine.demo_model import DEMO_LIMIT
from engine.events import (
    CANCELLED,
    CONTEXT_FULL,
    LENGTH,
    STOP,
    EngineReady,
    Event,
    LoadProgress,
    ModeChanged,
    PrefillProgress,
    Snapshot,
    TextDelta,
    TurnEnded,
)
from engine.expert_forward import ExpertPlant, MoeLayer, ProbedLayer, RouterTap, StepState, measure_expert_compute_s
from engine.kv_cache import KvCache
from engine.lookahead import FeedProbe, Lookahead, find_router
from engine.model_loading import LoadedModel, ModelPlan, load_model
from engine.model_source import resolve_model
from engine.sampling import Sampler, with_model_defaults
from engine.telemetry import Telemetry, TurnRecord
from offload.budget import BudgetPlan, BudgetRequest, plan_budget
from offload.cache import ExpertCache
from offload.errors import WaitCancelled
from offload.eviction import make_eviction
from offload.link import Link
from offload.prefetch import make_prefetcher
from offload.slots import SlotPool
from offload.staging import StagingRing
from offload.substitution import make_substitution

STAGING_SLOTS = 3
_RUNTIME_MARGIN_BYTES = 48 << 20
_PROGRESS_PERIOD_S = 0.1


class Session:
    """A model loaded under one configuration. `emit` and `publish` hand events and snapshots to the outside."""

    def __init__(
        self,
        config: EngineConfig,
        emit: Callable[[Event], None],
        publish: Callable[[Snapshot], None],
        is_cancelled: Callable[[], bool],
        wanted_mode: Callable[[], str] | None = None,
    ) -> None:
        """Loads. Raises MoeChatError, OffloadError, LoadCancelled; nothing is left running then."""
        self.config, self._emit, self._publish, self._is_cancelled = config, emit, publish, is_cancelled
        self._wanted_mode = wanted_mode or (lambda: self.mode)
        self.mode = config.mode
        started = perf_counter()
        torch.set_num_threads(config.compute_threads or machine.num_cores())
        progress = _Throttle(emit)
        folder = resolve_model(config.model, progress, is_cancelled)
        self.budget: BudgetPlan
        self.loaded = load_model(
            folder, config.prefill_chunk_tok, self._plan, lambda done, total: progress(LoadProgress("weights", done, total)), is_cancelled
        )
        self._assemble(self.loaded)
        self._load_s = perf_counter() - started
        self.set_mode(self.mode)

    # -- assembly -----------------------------------------------------------------------------------------------------

    def _plan(self, plan: ModelPlan) -> None:
        config = self.config
        self.budget = plan_budget(
            BudgetRequest(
                geometry=plan.geometry,
                memory_bytes=config.memory_bytes,
                residency=config.residency,
                runtime_bytes=machine.rss_bytes() + _RUNTIME_MARGIN_BYTES,
                resident_bytes=plan.resident_bytes,
                kv_bytes_per_tok=plan.kv.bytes_per_tok,
                kv_fixed_bytes=plan.kv.fixed_bytes,
                workspace_bytes=plan.workspace_bytes,
                staging_slots=STAGING_SLOTS,
                context_tok=config.context_tok,
                model_context_tok=plan.model_context_tok,
                available_bytes=machine.available_bytes(),
            )
        )

    def _assemble(self, loaded: LoadedModel) -> None:
        config, geometry = self.config, loaded.plan.geometry
        self._emit(LoadProgress("expert slots", 0, self.budget.slot_bytes))
        self.state = StepState(is_cancelled=self._is_cancelled, after_layer=self._after_layer)
        self.link = Link(loaded.store, config.link_threads, config.link_bytes_per_s)
        self.pool = SlotPool(self.budget.slots_per_layer, [layer.expert_bytes for layer in geometry.layers])
        self.cache = ExpertCache(geometry, self.pool, self.link, make_eviction(config.eviction, geometry))
        self._emit(LoadProgress("warm-up", 0, 0, ""))
        uses_own_cache = loaded.plan.kv.uses_library_cache
        kv = KvCache(loaded.model, self.budget.context_tok, config.prefill_chunk_tok, uses_own_cache)
        self.decoder = Decoder(loaded.model, kv, self.state, self.budget.context_tok, config.prefill_chunk_tok)
        lookahead = Lookahead(self._discover_feeds(loaded, kv))
        self.plant = ExpertPlant(
            cache=self.cache,
            pool=self.pool,
            staging=StagingRing(STAGING_SLOTS, max(layer.expert_bytes for layer in geometry.layers), self.link),
            prefetcher=make_prefetcher(config.prefetch, config.prefetch_depth),
            substitution=make_substitution("boundary", config.alpha),
            lookahead=lookahead,
            state=self.state,
        )
        self.layers = [self._moe_layer(number) for number in range(geometry.num_layers)]
        self.num_predicted_layers = sum(lookahead.can_predict(number) for number in range(geometry.num_layers))
        first = self.layers[0]
        hidden_dim = int(loaded.model.config.get_text_config().hidden_size)
        self.plant.expert_compute_s = measure_expert_compute_s(first, hidden_dim, loaded.model.dtype)
        depth = config.prefetch_depth if config.prefetch != "none" else 0
        self.telemetry = Telemetry(self.cache, self.link, self.layers, self.budget, depth, self.state)
        self.end_tokens = end_tokens(loaded.tokenizer, loaded.generation_config, loaded.model.config)

    def _discover_feeds(self, loaded: LoadedModel, kv: KvCache) -> list[Any]:
        """A short forward with experts that return zeros: finds the routers' feeds, and touches the KV cache's memory."""
        self._routers = [find_router(loaded.model, withheld.name) for withheld in loaded.modules]
        for withheld in loaded.modules:
            withheld.module.offload_layer = ProbedLayer()  # type: ignore[assignment]
        ids = torch.zeros(1, 4, dtype=torch.long)
        with FeedProbe(loaded.model, self._routers) as probe, torch.inference_mode():
            loaded.model(input_ids=ids, cache=kv.cache, use_cache=True, logits_to_keep=1)
        kv.reset()
        return probe.feeds(ids)

    def _moe_layer(self, number: int) -> MoeLayer:
        loaded = self.loaded
        geometry = loaded.plan.geometry.layers[number]
        tap = RouterTap(self._routers[number], geometry, self.state)
        layer = MoeLayer(number, geometry, loaded.formats[number], tap, self.plant)
        loaded.modules[number].module.offload_layer = layer  # type: ignore[assignment]
        return layer

    def close(self) -> None:
        """Stops the link and closes the checkpoint's files. Safe to call twice."""
        self.link.close()
        self.loaded.store.close()

    # -- what it is ---------------------------------------------------------------------------------------------------

    def ready(self) -> EngineReady:
        """The event that says what was loaded, and how."""
        geometry, name = self.loaded.plan.geometry, self.config.model
        return EngineReady(
            model_name=name if name == DEMO_MODEL else Path(name).name if Path(name).exists() else name,
            model_type=self.loaded.model_type,
            num_layers=geometry.num_layers,
            num_experts=max(layer.num_experts for layer in geometry.layers),
            top_k=max(layer.top_k for layer in geometry.layers),
            context_tok=self.budget.context_tok,
            effective=self.effective(),
            notices=self._notices(),
            load_s=self._load_s,
        )

    def effective(self) -> tuple[tuple[str, str], ...]:
        """The effective configuration, for a person."""
        config, budget, loaded = self.config, self.budget, self.loaded
        slots = sorted(set(budget.slots_per_layer))
        shown = str(slots[0]) if len(slots) == 1 else f"{slots[0]}-{slots[-1]}"
        widest = max(layer.num_experts for layer in loaded.plan.geometry.layers)
        parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in budget.parts)
        depth = f", depth {config.prefetch_depth}" if config.prefetch != "none" else ""
        return (
            ("model", str(loaded.folder)),
            ("architecture", loaded.model_type),
            ("dtype", str(loaded.model.dtype).removeprefix("torch.")),
            ("budget", f"{format_bytes(budget.budget_bytes)} = {parts}"),
            ("slots", f"{shown} of {widest} a layer ({budget.residency_rate:.0%} of the experts)"),
            ("context", f"{budget.context_tok} tokens"),
            ("prefill chunk", f"{config.prefill_chunk_tok} tokens"),
            ("mode", f"{self.mode}, alpha {config.alpha:g}"),
            ("eviction", config.eviction),
            ("prefetch", f"{config.prefetch}{depth}, {self.num_predicted_layers} of {len(self.layers) - 1} layers predictable"),
            ("link", self.describe_link()),
            ("experts read", f"{loaded.store.num_direct_layers} of {len(self.layers)} layers straight into slots"),
            ("threads", f"{torch.get_num_threads()} compute, {config.link_threads} link"),
        )

    def describe_link(self) -> str:
        """The link for a person; an emulated one says so."""
        emulated, best = self.config.link_bytes_per_s, self.link.best_bytes_per_s
        if emulated:
            return f"emulated {emulated / 1e9:g} GB/s"
        return f"disk to RAM, best measured {best / 1e9:.2f} GB/s" if best else "disk to RAM, not measured yet"

    def _notices(self) -> tuple[str, ...]:
        notices = [DEMO_LIMIT] if self.config.model == DEMO_MODEL else []
        if self.config.link_bytes_per_s:
            notices.append(f"The link is emulated at {self.config.link_bytes_per_s / 1e9:g} GB/s.")
        if not getattr(self.loaded.tokenizer, "chat_template", None):
            notices.append("The model has no chat template: the conversation is given to it as plain text.")
        if self.budget.residency_rate >= 1:
            notices.append("Every routed expert fits into the budget: nothing needs to be offloaded.")
        return tuple(notices)

    # -- mode ---------------------------------------------------------------------------------------------------------

    def set_mode(self, mode: str, request_id: int | None = None, at_tok: int | None = None) -> None:
        """EXACT or APPROX from the next step on."""
        is_change = mode != self.mode
        self.mode = mode
        self.state.is_approx = mode == APPROX
        self.telemetry.mode = mode
        if is_change:
            self._emit(ModeChanged(mode, request_id, at_tok))
            self.publish()

    # -- a turn -------------------------------------------------------------------------------------------------------

    def answer(self, request: Submit) -> None:
        """Answers, emitting progress, text and the end. Raises MoeChatError, OffloadError; the session stays usable."""
        sampling = with_model_defaults(request.sampling, self.loaded.generation_config)
        prompt = encode(self.loaded.tokenizer, request.messages)
        check_fits(len(prompt), self.budget.context_tok)
        kv = self.decoder.cache
        wanted = common_prefix(kv.tokens, prompt)
        note = "" if kv.keep_prefix(wanted) else "the cache of this model cannot be cropped; everything is computed anew"
        record = TurnRecord(self.telemetry, len(prompt), len(kv.tokens), self.describe_link)
        turn = _Turn(request.request_id, prompt, sampling, TextStream(self.loaded.tokenizer, sampling.stop), record, note)
        try:
            reason = self._run(turn)
        except WaitCancelled:
            reason = CANCELLED
        finally:
            self.telemetry.end_turn()
            self._show("idle")
        turn.say(self._emit, turn.stream.finish())
        self._emit(TurnEnded(request.request_id, reason, record.stats(), turn.text))

    def _run(self, turn: _Turn) -> str:
        self._show("prefill")
        self._emit(turn.progress(len(self.decoder.cache.tokens)))
        logits = self.decoder.prefill(turn.prompt, lambda done: self._emit(turn.progress(done)))
        turn.record.prefill_done()
        self._show("decode")
        room = self.budget.context_tok - len(turn.prompt)
        limit = min(turn.sampling.max_new_tok or room, room)
        for token in self.decoder.tokens(logits, Sampler(turn.sampling), limit):
            turn.record.clock.token()
            turn.record.new_tok += 1
            if token in self.end_tokens:
                return STOP
            turn.say(self._emit, turn.stream.push(token))
            if turn.stream.is_stopped:
                return STOP
            self._between_tokens(turn)
        return LENGTH if turn.sampling.max_new_tok is not None and limit == turn.sampling.max_new_tok else CONTEXT_FULL

    def _between_tokens(self, turn: _Turn) -> None:
        self.telemetry.context_used_tok = len(self.decoder.cache.tokens)
        self.telemetry.is_context_approximate = self.decoder.cache.is_approximate
        if self._is_cancelled():
            raise WaitCancelled("Stopped.")
        wanted = self._wanted_mode()
        if wanted != self.mode:
            self.set_mode(wanted, turn.request_id, turn.record.new_tok)

    def _after_layer(self, layer: int) -> None:
        if self._is_cancelled():
            raise WaitCancelled("Stopped.")
        if self.telemetry.is_due():
            self._publish(self.telemetry.snapshot())

    def _show(self, phase: str) -> None:
        self.telemetry.phase = phase
        self.telemetry.context_used_tok = len(self.decoder.cache.tokens)
        self.telemetry.is_context_approximate = self.decoder.cache.is_approximate
        self.publish()

    def publish(self) -> None:
        """A snapshot now."""
        self._publish(self.telemetry.snapshot())

    # -- for proofs and benches ---------------------------------------------------------------------------------------

    def greedy_ids(self, prompt: list[int], num_new_tok: int) -> tuple[list[int], torch.Tensor]:
        """Greedy token ids after a cold cache, and the logits [vocab] of the prompt's last position."""
        self.decoder.cache.reset()
        logits = self.decoder.prefill(prompt, lambda done: None)
        first = logits.clone()
        ids = list(self.decoder.tokens(logits, Sampler(SamplingConfig(temperature=0.0)), num_new_tok))
        return ids, first


class _Turn:
    """What one answer carries along."""

    def __init__(
        self, request_id: int, prompt: list[int], sampling: SamplingConfig, stream: TextStream, record: TurnRecord, note: str
    ) -> None:
        self.request_id, self.prompt, self.sampling, self.stream, self.record = request_id, prompt, sampling, stream, record
        self._reused_tok, self._note = record.stats().reused_tok, note
        self.text = ""

    def progress(self, done_tok: int) -> PrefillProgress:
        return PrefillProgress(self.request_id, done_tok, len(self.prompt), self._reused_tok, self._note)

    def say(self, emit: Callable[[Event], None], piece: str) -> None:
        if piece:
            self.text += piece
            emit(TextDelta(self.request_id, piece, self.record.new_tok))


class _Throttle:
    """Lets progress through at a readable rate, and every change of stage."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit, self._stage, self._said_s = emit, "", 0.0

    def __call__(self, progress: LoadProgress) -> None:
        now = monotonic()
        if progress.stage != self._stage or progress.done == progress.total or now - self._said_s > _PROGRESS_PERIOD_S:
            self._stage, self._said_s = progress.stage, now
            self._emit(progress)
