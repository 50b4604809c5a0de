"""A model loaded under one configuration, and the answers it gives. Runs in the engine's thread."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter

from engine.api import CountTokens, Submit
from engine.arrays import Array
from engine.backends.offloaded_model import OffloadedModel
from engine.chat.chat_template import ChatTemplate
from engine.chat.end_tokens import end_tokens
from engine.chat.fitting import common_prefix
from engine.chat.prompt import ChatPrompts
from engine.chat.turn import Turn
from engine.checkpoint.model_source import resolve_model
from engine.commands.domain_profiles import DomainProfiles
from engine.config import EngineConfig
from engine.errors import MoeChatError
from engine.events import (
    CANCELLED,
    CONTEXT_FULL,
    ERROR,
    LENGTH,
    STOP,
    EngineReady,
    Event,
    Failed,
    LoadProgress,
    ModeChanged,
    Profiles,
    Snapshot,
    StrategySet,
    TokensCounted,
    TurnEnded,
)
from engine.process.failures import failure_of
from engine.process.progress_throttle import ProgressThrottle
from engine.sampling.defaults import with_model_defaults
from engine.sampling.sampler import Sampler
from engine.telemetry.effective import describe_link, describe_ready, effective
from engine.telemetry.snapshots import Telemetry
from engine.telemetry.turn_record import TurnRecord
from offload.errors import ProfileError, WaitCancelled
from offload.residency.background_filling import BackgroundFilling

_CANNOT_CROP = "the cache of this model cannot be cropped; everything is computed anew"


class Session:
    """`emit` and `publish` hand events and snapshots to the outside; `wanted_mode` is asked between tokens."""

    def __init__(
        self,
        config: EngineConfig,
        emit: Callable[[Event], None],
        publish: Callable[[Snapshot], None],
        is_cancelled: Callable[[], bool],
        wanted_mode: Callable[[], str] | None = None,
    ) -> None:
        """Loads. Raises MoeChatError, OffloadError, WaitCancelled; nothing is left running then."""
        started = perf_counter()
        self._emit, self._publish, self._is_cancelled = emit, publish, is_cancelled
        self.mode: str = config.mode
        self._wanted_mode = wanted_mode or (lambda: self.mode)
        progress = ProgressThrottle(emit)
        folder = resolve_model(config.model, progress, is_cancelled)
        self.engine = OffloadedModel(
            config,
            folder,
            progress,
            is_cancelled,
            self._after_layer,
            check_tokenizer=lambda tokenizer: ChatTemplate(tokenizer, is_cancelled).check(),
        )
        try:
            self._begin_service(progress)
        except BaseException:
            self.engine.close()
            raise
        self._load_s = perf_counter() - started

    def _begin_service(self, progress: Callable[[LoadProgress], None]) -> None:
        self.telemetry = Telemetry(self.engine)
        self.telemetry.mode = self.mode
        self.engine.set_mode(self.mode)
        loaded, domain = self.engine.loaded, self.engine.config.domain
        self._prompts = ChatPrompts(
            loaded.tokenizer, self.engine.budget.context_tok, self._is_cancelled, loaded.vocabulary_tok
        )
        self._end_tokens = end_tokens(
            loaded.tokenizer, loaded.defaults, loaded.end_token_sources, self._prompts.template
        )
        self._prefilling: Turn | None = None
        self._filling: BackgroundFilling | None = None
        self.profiles = DomainProfiles(self.engine)
        if domain is not None:
            self._warm_at_load(domain, progress)

    def ready(self) -> EngineReady:
        """The event that says what was loaded, and how."""
        return describe_ready(self.engine, self.mode, self._load_s, self._prompts.thinking_choices)

    def close(self) -> None:
        """Stops everything. Safe to call twice."""
        self.engine.close()

    def set_mode(self, mode: str, request_id: int | None = None, at_tok: int | None = None) -> None:
        """EXACT or APPROX from the next step on; a change is told."""
        if mode == self.mode:
            return
        self.mode = self.telemetry.mode = mode
        self.engine.set_mode(mode)
        self._emit(ModeChanged(mode, request_id, at_tok))
        self.publish()

    def set_domain(self, domain: str) -> None:
        """Warms the cache by the domain's profile, if it has one, and tells. Raises ProfileError, WaitCancelled."""
        self._emit(self.profiles.warm(domain, self._is_cancelled))
        self.publish()

    def set_strategy(self, strategy: str) -> None:
        """Answers under another strategy from now on; the conversation stays computed. Tells which one is in effect,
        also where it raises BudgetError, with nothing changed."""
        try:
            self.engine.set_strategy(self.engine.config.with_strategy(strategy))
        finally:
            if self.engine.is_whole:
                self.telemetry = Telemetry(self.engine)
                self.telemetry.mode = self.mode
                self.telemetry.see(self.engine.decoder.cache)
                self._emit(StrategySet(self.engine.config.strategy, effective(self.engine, self.mode)))
                self.publish()

    def count_tokens(self, command: CountTokens) -> None:
        """Tells how many tokens each text takes inside a message. Raises CheckpointError."""
        self._emit(TokensCounted(command.request_id, tuple(map(self._prompts.count, command.texts))))

    def tell_profiles(self) -> None:
        """Which profiles there are."""
        self._emit(Profiles(self.profiles.states()))

    def _warm_at_load(self, domain: str, progress: Callable[[LoadProgress], None]) -> None:
        """A profile that cannot be used does not keep the model from loading; `Profiles` says what is wrong with it."""
        progress(LoadProgress("warm start", 0, 0, ""))
        with suppress(ProfileError):
            self._emit(self.profiles.warm(domain, self._is_cancelled))

    def begin_task(self) -> None:
        """A long-running task has the engine to itself; the panels say so."""
        self._show("task")

    def end_task(self, is_rebuilt: bool) -> None:
        """`is_rebuilt`: it built the expert machinery anew, and everything is counted from zero."""
        if is_rebuilt:
            self.telemetry = Telemetry(self.engine)
            self.telemetry.mode = self.mode
        self._show("idle")

    def publish(self) -> None:
        """A snapshot now."""
        self._publish(self.telemetry.snapshot())

    def answer(self, request: Submit) -> None:
        """Answers, emitting progress, text and the end. The session stays usable, whatever is raised.

        Raises MoeChatError, OffloadError before the first token; a failure after it ends the answer as it is.
        """
        turn = self._begin(request)
        failure: Failed | None = None
        try:
            reason = self._run(turn)
        except WaitCancelled:
            reason = CANCELLED
        except Exception as error:
            if isinstance(error, MoeChatError):  # of the model's numbers, and the KV cache was computed with them
                self.engine.decoder.cache.reset()
            if not turn.record.new_tok:
                raise
            traceback.print_exc()
            reason, failure = ERROR, failure_of(request.request_id, error, is_fatal=False)
        finally:
            if self._filling is not None:
                self._filling.end()
            self._prefilling = self._filling = None
            self.telemetry.end_turn()
            self._show("idle")
        turn.emit_text(self._emit, turn.stream.finish(goes_on=reason != STOP))
        self.telemetry.measure_limit()
        self.publish()
        self._prompts.remember(turn.written())
        self.engine.end_request()
        self._emit(TurnEnded(request.request_id, reason, turn.record.stats(), turn.text, turn.thinking, failure))

    def _begin(self, request: Submit) -> Turn:
        started_s = perf_counter()
        kv = self.engine.decoder.cache
        sampling = with_model_defaults(request.sampling, self.engine.loaded.defaults)
        prepared = self._prompts.prepare(request, sampling)
        prompt = prepared.tokens
        known_tok = common_prefix(kv.tokens, prompt)
        if request.recomputes:
            known_tok = min(known_tok, kv.num_exact_tok)
        note = "" if kv.keep_prefix(known_tok) else _CANNOT_CROP
        reused_tok = len(kv.tokens)
        record = TurnRecord(
            self.telemetry,
            len(prompt),
            reused_tok,
            started_s,
            lambda: describe_link(self.engine),
            prepared.num_left_out,
            f"{self.engine.backend.name}, {self.engine.loaded.number_format}, {self.engine.config.strategy}",
        )
        record.see(kv)
        return Turn(request, prepared, sampling, record, note)

    def _run(self, turn: Turn) -> str:
        decoder = self.engine.decoder
        self._show("prefill")
        self._prefilling, self._filling = turn, BackgroundFilling(self.engine.cache)
        self._emit(turn.progress(len(decoder.cache.tokens)))
        logits = self._read_prompt(turn)
        self._prefilling = None
        turn.record.prefill_done()
        self._show("decode")
        room = self.engine.budget.context_tok - len(turn.prompt) + 1
        asked = turn.sampling.max_new_tok
        for token in decoder.tokens(logits, Sampler(turn.sampling), min(asked or room, room)):
            turn.record.token()
            if token in self._end_tokens:
                return STOP
            turn.take_token(self._emit, token)
            if turn.stream.is_stopped:
                return STOP
            self._between_tokens(turn)
        return LENGTH if asked is not None and turn.record.new_tok == asked else CONTEXT_FULL

    def _read_prompt(self, turn: Turn) -> Array:
        """The logits [vocab] after the prompt.

        An answer that goes on lacks its last token's alone: that is a decode step, as it would have been without the
        stop. Prefill could differ from it in the last bit.
        """
        decoder, prompt = self.engine.decoder, turn.prompt
        if turn.is_resumed and len(decoder.cache.tokens) == len(prompt) - 1:
            logits = decoder.step(prompt[-1])
            self._emit(turn.progress(len(prompt)))
            return logits
        return decoder.prefill(prompt, lambda done_tok: self._emit(turn.progress(done_tok)))

    def _between_tokens(self, turn: Turn) -> None:
        self.telemetry.see(self.engine.decoder.cache)
        turn.record.see(self.engine.decoder.cache)
        if self._is_cancelled():
            raise WaitCancelled("Stopped.")
        wanted = self._wanted_mode()
        if wanted != self.mode:
            self.set_mode(wanted, turn.request_id, turn.record.new_tok)

    def _after_layer(self, layer: int) -> None:
        if self._is_cancelled():
            raise WaitCancelled("Stopped.")
        if self._filling is not None and self._is_last_chunk():
            self._filling.layer_ended(layer)
        if self.telemetry.is_due():
            began_s = perf_counter()
            self.publish()
            self.engine.state.overhead_s += perf_counter() - began_s
            if self._prefilling is not None:
                self._emit(self._prefilling.progress(self._prefilled_tok(layer)))

    def _chunk(self) -> tuple[int, int]:
        """(first token, number of tokens) of the part of the prompt that is being computed."""
        assert self._prefilling is not None
        start = len(self.engine.decoder.cache.tokens)
        return start, self.engine.decoder.chunk_at(start, len(self._prefilling.prompt))

    def _is_last_chunk(self) -> bool:
        """True in decode. Before, the next chunk may ask for any of a layer's experts."""
        return self._prefilling is None or sum(self._chunk()) >= len(self._prefilling.prompt)

    def _prefilled_tok(self, layer: int) -> int:
        """Tokens done of the prompt, the running chunk counted by the layers it has passed."""
        start, num_tok = self._chunk()
        return start + num_tok * (layer + 1) // (len(self.engine.layers) + 1)

    def _show(self, phase: str) -> None:
        self.telemetry.phase = phase
        self.telemetry.see(self.engine.decoder.cache)
        self.publish()
