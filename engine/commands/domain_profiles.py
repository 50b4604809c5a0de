"""The domain profiles of the loaded model: lists, builds, shows and deletes them, and warms the expert cache by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from engine.api import BuildProfile
from engine.backends.offloaded_model import OffloadedModel
from engine.commands.routing_recording import build_domain_profile, describe_profile
from engine.commands.task_outcome import OnTaskProgress, TaskOutcome
from engine.config import format_bytes
from engine.errors import ConfigError
from engine.events import DomainSet, ProfileState
from engine.profiles.predictor_store import PredictorStore, Trained, accuracy_in_words
from engine.profiles.prompt_sets import read_prompts, shipped_prompts
from engine.profiles.store import ProfileStore
from offload.errors import ProfileError
from offload.nonuniform_budget import with_moved_slots
from offload.replay.profile import DomainProfile
from offload.replay.trace import RoutingTrace
from offload.replay.trace_writer import TraceWriter
from offload.residency.warming import warm_layers
from offload.slot_groups import SlotGroups

PREDICTOR_SHARE = 0.03
"""Of the shortest decode step: what all predictions of a token may take together."""


class DomainProfiles:
    """The commands on the loaded model's profiles. Call in the engine's thread, between answers."""

    def __init__(self, engine: OffloadedModel) -> None:
        self._engine = engine
        self._store = ProfileStore(engine.fingerprint)
        self._begun: tuple[int, TraceWriter] | None = None
        """The request of a build that was interrupted, and what it has recorded."""

    def states(self) -> tuple[ProfileState, ...]:
        """The state of every profile of this model; `problem` is set where one cannot be used."""
        return tuple(self._state(name) for name in self._store.names())

    def _state(self, domain: str) -> ProfileState:
        try:
            profile = self._load(domain)
        except ProfileError as error:
            return ProfileState(domain, None, 0, f"{error.message} {error.hint}")
        assert profile is not None, "the store named it"
        return ProfileState(domain, self._expected(profile), profile.num_prompts)

    def _load(self, domain: str) -> DomainProfile | None:
        """None: there is none. Raises ProfileError when it is damaged or another model's."""
        profile = self._store.load(domain)
        if profile is not None and not profile.geometry.routes_like(self._engine.loaded.plan.geometry):
            raise ProfileError(
                f"The profile of {domain!r} is of other MoE layers than {self._engine.loaded.folder.name} has.",
                f"Build it again: moe-chat profile build --domain {domain}",
            )
        return profile

    def _expected(self, profile: DomainProfile) -> float | None:
        return profile.expected_hit_rate(self._engine.cache.slots_per_layer)

    def warm(self, domain: str, is_cancelled: Callable[[], bool]) -> DomainSet:
        """Loads the domain's experts of the highest mean router score into the slots; does nothing without a profile.

        Changes the expert cache. Raises ProfileError when the profile is damaged or another model's, ExpertReadError,
        WaitCancelled.
        """
        profile = self._load(domain)
        if profile is None:
            return DomainSet(domain, None, None)
        cache = self._engine.cache
        num_warmed = warm_layers(cache, profile.warm_start(cache.slots_per_layer), is_cancelled)
        return DomainSet(domain, num_warmed, self._expected(profile))

    def build(self, command: BuildProfile, on_progress: OnTaskProgress) -> TaskOutcome:
        """Records the routing of prompts, builds a profile from it and saves it. Needs memory outside the byte budget
        for the recording. Raises ConfigError for prompts that cannot be read, WaitCancelled.

        The same request goes on where it was interrupted, unless `drop_begun` was called.
        """
        if command.prompts_path is None:
            prompts = shipped_prompts(command.domain)[: command.num_prompts]
        else:
            prompts = read_prompts(Path(command.prompts_path), command.num_prompts)
        self._store.path(command.domain)
        request_id, writer = self._begun or (None, None)
        if writer is None or request_id != command.request_id:
            writer = TraceWriter(self._store.fingerprint, command.domain, self._engine.loaded.plan.geometry)
        self._begun = (command.request_id, writer)
        profile = build_domain_profile(
            self._engine,
            self._store.fingerprint,
            command.domain,
            prompts,
            command.num_new_tok,
            on_progress,
            begun=writer,
        )
        trained = self._train(writer.trace(), on_progress) if command.has_predictor else None
        self.drop_begun()
        path = self._store.save(profile)
        slots = self._engine.cache.slots_per_layer
        report: dict[str, object] = {
            "domain": profile.domain,
            "path": str(path),
            "num_prompts": profile.num_prompts,
            "num_tok": profile.num_tok,
            "expected_hit_rate": self._expected(profile),
        }
        lines = (*describe_profile(profile, slots)[:2], f"kept in {path}")
        if trained is not None:
            lines += self._keep_predictor(command.domain, trained, report)
        return TaskOutcome(True, report, lines)

    def _train(self, trace: RoutingTrace, on_progress: OnTaskProgress) -> Trained:
        """Raises ProfileError for too few prompts, WaitCancelled."""
        from engine.profiles.predictor_training import TrainingRules, train_predictor

        max_s = PREDICTOR_SHARE * self._engine.compute_floor_ms / 1000
        return train_predictor(
            trace, TrainingRules(max_inference_s=max_s), on_progress, self._engine.state.is_cancelled
        )

    def _keep_predictor(self, domain: str, trained: Trained, report: dict[str, object]) -> tuple[str, ...]:
        path = PredictorStore(self._store.fingerprint, self._engine.loaded.plan.geometry).save(domain, trained)
        accuracy, num_bytes = trained.accuracy, trained.predictor.num_bytes
        report["predictor"] = {
            "path": str(path),
            "bytes": num_bytes,
            "exact_top_k_rate": accuracy.exact_rate,
            "at_least_half_rate": accuracy.half_rate,
            "trained_on_prompts": trained.num_trained_on,
            "held_out_prompts": trained.num_held_out,
            "first_width": trained.predictor.history.shape[1],
        }
        widest = trained.predictor.history.shape[1]
        return (
            f"predictor: {accuracy_in_words(trained)}; {format_bytes(num_bytes)}, {widest} wide",
            f"kept in {path}",
        )

    def drop_begun(self) -> None:
        """Nobody goes on with a build that was interrupted: what it has recorded is forgotten."""
        self._begun = None

    def show(self, domain: str | None, has_plan: bool = False) -> TaskOutcome:
        """One profile with its curves, or the list. Raises ConfigError when there is none, ProfileError."""
        if domain is None:
            states = self.states()
            lines = tuple(self._line(state) for state in states) or ("No profiles of this model yet.",)
            return TaskOutcome(True, {"profiles": [_as_dict(state) for state in states]}, lines)
        profile = self._load(domain)
        if profile is None:
            known = ", ".join(self._store.names()) or "none"
            raise ConfigError(
                f"There is no profile {domain!r} for this model; there are: {known}.",
                f"Build it: moe-chat profile build --domain {domain}",
            )
        slots = self._engine.cache.slots_per_layer
        curves = {policy: [curve.rates.tolist() for curve in profile.curves(policy)] for policy in ("lru", "history")}
        report: dict[str, object] = {**_as_dict(self._state(domain)), "slots": list(slots), "curves": curves}
        lines = describe_profile(profile, slots)
        if has_plan:
            plan, plan_lines = self._plan(profile)
            report, lines = {**report, "plan": plan}, (*lines, *plan_lines)
        return TaskOutcome(True, report, lines)

    def _plan(self, profile: DomainProfile) -> tuple[dict[str, object], tuple[str, ...]]:
        """The slots planned from this profile alone: a report, and lines that name every move."""
        budget = self._engine.budget
        uniform = SlotGroups(budget.uniform_slots, budget.groups.group_of_layer)
        planned = with_moved_slots(
            replace(budget, groups=uniform, slot_moves=()), self._engine.loaded.plan.geometry, profile.curves()
        )
        before, after = map(profile.expected_hit_rate, (uniform.shares, planned.slots_per_layer))
        report: dict[str, object] = {
            "uniform_slots": list(planned.uniform_slots),
            "slots": list(planned.slots_per_layer),
            "moves": [str(move) for move in planned.slot_moves],
            "expected_hit_rate_uniform": before,
            "expected_hit_rate": after,
        }
        gain = f", expected hit rate {before:.1%} -> {after:.1%}" if before is not None and after is not None else ""
        head = f"slots by this profile: {len(planned.slot_moves)} moves from a uniform share{gain}"
        return report, (head, *(f"  {move}" for move in planned.slot_moves))

    def delete(self, domain: str) -> TaskOutcome:
        """Deletes a profile's file. Raises ConfigError when there is none."""
        self._store.delete(domain)
        return TaskOutcome(True, {"deleted": domain}, (f"The profile {domain!r} is deleted.",))

    @staticmethod
    def _line(state: ProfileState) -> str:
        if state.problem:
            return f"{state.domain:<16} cannot be used: {state.problem}"
        expected = f"{state.expected_hit_rate:.1%}" if state.expected_hit_rate is not None else "–"
        return f"{state.domain:<16} expected hit rate {expected} at the present slots, from {state.num_prompts} prompts"


def _as_dict(state: ProfileState) -> dict[str, object]:
    return {
        "domain": state.domain,
        "expected_hit_rate": state.expected_hit_rate,
        "num_prompts": state.num_prompts,
        "problem": state.problem,
    }
