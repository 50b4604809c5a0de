"""An engine that says what a test tells it to, with snapshots shaped like the demo's."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace

from engine.api import BuildProfile, Command, Load, SetDomain, SetMode, SetStrategy, Submit
from engine.config import EXACT
from engine.events import (
    HOST,
    IN_USE,
    LABEL_EXACT,
    LOADING,
    RESIDENT,
    STOP,
    SUBSTITUTE,
    DomainSet,
    EngineReady,
    Event,
    Failed,
    LinkUse,
    LoadProgress,
    MemoryUse,
    ModeChanged,
    PrefillProgress,
    Profiles,
    ProfileState,
    Snapshot,
    StrategySet,
    TextDelta,
    Timing,
    TurnEnded,
    TurnStats,
)
from offload.counters import Counters

MIB = 2**20

READY = EngineReady(
    model_name="SmolLM2-135M-MoE demo",
    model_type="glm4_moe",
    num_layers=30,
    num_experts=16,
    top_k=2,
    context_tok=2048,
    effective=(("memory", "512 MiB"), ("residency", "50 %")),
    notices=("This is a small demo model: it chats, and it is often wrong.",),
    load_s=2.4,
)


def counters(tokens: int, *, is_approximate: bool = False, seed: int = 0) -> Counters:
    """What `tokens` decode steps of a 30-layer top-2 model might have counted; the identities hold."""
    routed = tokens * 60
    late, cold, capacity = routed * 3 // 100, routed // 100, routed * 5 // 100
    substituted = routed * 2 // 100 if is_approximate else 0
    prefetched = routed * 9 // 100 + seed % 3
    resident = routed - late - cold - capacity - substituted - prefetched
    issued = prefetched + late + 8
    return Counters(
        routed=routed,
        resident_hits=resident,
        prefetched_hits=prefetched,
        late=late,
        cold_misses=cold,
        capacity_misses=capacity,
        substituted=substituted,
        substituted_mass=substituted * 0.18,
        prefetch_issued=issued,
        prefetch_useful=prefetched,
        prefetch_late=late,
        prefetch_wasted=5,
        prefetch_cancelled=2,
        demand_loads=cold + capacity,
        prefetch_loads=issued - 3,
        bytes_loaded=(cold + capacity + issued) * MIB // 3,
    )


def residency(
    num_layers: int, num_experts: int, chance: random.Random, *, is_approximate: bool = False
) -> tuple[bytes, ...]:
    """A plausible map: half of the experts resident, two in use a layer, a few on their way."""
    rows = []
    for _ in range(num_layers):
        row = [RESIDENT] * (num_experts // 2) + [HOST] * (num_experts - num_experts // 2)
        chance.shuffle(row)
        held = [expert for expert, code in enumerate(row) if code == RESIDENT]
        for expert in chance.sample(held, min(2, len(held))):
            row[expert] = SUBSTITUTE if is_approximate and chance.random() < 0.08 else IN_USE
        if chance.random() < 0.3:
            row[chance.choice([expert for expert, code in enumerate(row) if code == HOST])] = LOADING
        rows.append(bytes(row))
    return tuple(rows)


def snapshot(
    sequence: int,
    *,
    phase: str = "idle",
    mode: str = EXACT,
    tokens: int = 0,
    num_layers: int = 30,
    num_experts: int = 16,
    emulated_bytes_per_s: float | None = None,
    recent_tpot_ms: tuple[float, ...] = (),
) -> Snapshot:
    """A whole state, repeatable by its sequence number."""
    chance = random.Random(sequence)
    is_approximate = mode != EXACT
    turn = counters(tokens, is_approximate=is_approximate, seed=sequence)
    layer = Counters(
        routed=turn.routed // num_layers,
        substituted=turn.substituted // num_layers,
        resident_hits=turn.hits // num_layers,
    )
    has_speed = bool(recent_tpot_ms)
    return Snapshot(
        sequence=sequence,
        phase=phase,
        mode=mode,
        residency=residency(num_layers, num_experts, chance, is_approximate=is_approximate),
        slots_per_layer=(num_experts // 2,) * num_layers,
        layer_numbers=tuple(range(num_layers)),
        layer_counters=(layer,) * num_layers,
        turn_counters=turn,
        prefetch_depth=1,
        context_used_tok=64 + tokens,
        context_tok=2048,
        timing=Timing(
            ttft_ms=412.0 if has_speed else None,
            tpot_now_ms=recent_tpot_ms[-1] if has_speed else None,
            tpot_mean_ms=sum(recent_tpot_ms) / len(recent_tpot_ms) if has_speed else None,
            tpot_p50_ms=sorted(recent_tpot_ms)[len(recent_tpot_ms) // 2] if has_speed else None,
            tpot_p95_ms=max(recent_tpot_ms) if has_speed else None,
            link_wait_rate=0.31 if has_speed else None,
            recent_tpot_ms=recent_tpot_ms,
        ),
        memory=MemoryUse(
            budget_bytes=812 * MIB,
            parts=(
                ("runtime", 340 * MIB),
                ("weights", 139 * MIB),
                ("kv", 90 * MIB),
                ("slots", 121 * MIB),
                ("work", 64 * MIB),
            ),
            rss_bytes=731 * MIB,
            peak_rss_bytes=760 * MIB,
        ),
        link=LinkUse(
            bytes_per_s=1.31e9 if tokens else None,
            best_bytes_per_s=1.62e9 if tokens else None,
            emulated_bytes_per_s=emulated_bytes_per_s,
            queued=sequence % 3,
            bytes_moved=turn.bytes_loaded,
        ),
        counters=turn,
    )


def stats(tokens: int, *, label: str = LABEL_EXACT, counted: Counters | None = None) -> TurnStats:
    """The record of an answer of that many tokens."""
    return TurnStats(
        prompt_tok=38,
        reused_tok=0,
        new_tok=tokens,
        ttft_ms=412.0,
        tpot_ms=48.2,
        tpot_p50_ms=46.0,
        tpot_p95_ms=71.5,
        link_wait_ms=15.0 * tokens,
        counters=counters(tokens) if counted is None else counted,
        prefill_bytes=96 * MIB,
        decode_bytes=tokens * MIB,
        label=label,
        prefill_path="one expert at a time",
        link="disk to memory, 1.6 GB/s at best",
    )


class FakeEngine:
    """An EngineLink under a test's control: `sent` holds commands, `tell` makes events."""

    def __init__(self) -> None:
        self.sent: list[Command] = []
        self.events: deque[Event] = deque()
        self.snapshot: Snapshot | None = None
        self.is_started = False
        self.is_closed = False
        self.has_died = False
        self.profiles: tuple[ProfileState, ...] = ()
        self.load_id: int | None = None
        """The id of the last load."""

    @property
    def is_alive(self) -> bool:
        return self.is_started and not self.is_closed and not self.has_died

    def start(self) -> None:
        self.is_started = True

    def send(self, command: Command) -> None:
        self.sent.append(command)
        if isinstance(command, Load):
            self.load_id = command.request_id
        self.answer(command)

    def answer(self, command: Command) -> None:
        """React to a command; nothing here."""

    def drain(self) -> list[Event]:
        drained = list(self.events)
        self.events.clear()
        return drained

    def wait_event(self, timeout: float | None) -> Event | None:
        return self.events.popleft() if self.events else None

    def begin_close(self) -> None:
        """Ends at once when it is closed."""

    def close(self) -> None:
        self.is_closed = True

    # What a test makes it say

    def tell(self, *events: Event) -> None:
        """Events, in order."""
        self.events.extend(events)

    def become_ready(self) -> None:
        """Loading, then ready."""
        self.snapshot = snapshot(1)
        ready = replace(READY, request_id=self.load_id)
        self.tell(LoadProgress("reading weights", 70 * MIB, 139 * MIB), ready, Profiles(self.profiles))

    def submitted(self) -> list[Submit]:
        """Every question it was asked."""
        return [command for command in self.sent if isinstance(command, Submit)]

    def building(self) -> list[BuildProfile]:
        """Every profile it was told to build."""
        return [command for command in self.sent if isinstance(command, BuildProfile)]

    def has_profiles(self, *profiles: ProfileState) -> None:
        """These are the profiles from now on."""
        self.profiles = profiles
        self.tell(Profiles(profiles))

    def warm(self, domain: str) -> None:
        """The domain is set, and the cache warmed where there is a profile."""
        profile = next((profile for profile in self.profiles if profile.domain == domain), None)
        self.tell(DomainSet(domain, 62 if profile else None, profile.expected_hit_rate if profile else None))

    def begin_answer(self, text: str, num_tok: int) -> int:
        """The prompt read, then some text; returns the request."""
        request_id = self.submitted()[-1].request_id
        self.tell(PrefillProgress(request_id, 0, 38, 0), TextDelta(request_id, text, num_tok))
        return request_id

    def end_answer(
        self, request_id: int, text: str, num_tok: int, reason: str = STOP, label: str = LABEL_EXACT
    ) -> None:
        """The answer is over."""
        self.tell(TurnEnded(request_id, reason, stats(num_tok, label=label), text))

    def die(self) -> None:
        """The process is gone."""
        self.has_died = True
        self.tell(
            Failed(
                None,
                "The engine stopped",
                "Its process was killed by signal 9.",
                "The log is engine.log.",
                is_fatal=True,
            )
        )


class ObedientEngine(FakeEngine):
    """Loads at once, and does what it is told to do with the mode and the domain."""

    def answer(self, command: Command) -> None:
        if isinstance(command, Load):
            self.become_ready()
        elif isinstance(command, SetMode):
            self.tell(ModeChanged(command.mode, None, None))
        elif isinstance(command, SetStrategy):
            self.tell(StrategySet(command.strategy, (("strategy", command.strategy),)))
        elif isinstance(command, SetDomain):
            self.warm(command.domain)
