"""Ordered events, and the snapshot, of which only the latest matters: values without torch, sent between processes."""

from __future__ import annotations

from dataclasses import dataclass

# Part of the seam: whoever reads events reads these too.
from engine.snapshot import LinkUse as LinkUse
from engine.snapshot import MemoryUse as MemoryUse
from engine.snapshot import Snapshot as Snapshot
from engine.snapshot import Timing as Timing
from offload.counters import Counters as Counters
from offload.residency.codes import HOST as HOST
from offload.residency.codes import IN_USE as IN_USE
from offload.residency.codes import LOADING as LOADING
from offload.residency.codes import RESIDENT as RESIDENT
from offload.residency.codes import SUBSTITUTE as SUBSTITUTE

STOP, LENGTH, CANCELLED, CONTEXT_FULL, ERROR = "stop", "length", "cancelled", "context_full", "error"
"""Why a turn ended."""

UNLOADED = "unloaded"
"""`Failed.kind`: the engine goes on without a model."""

LABEL_EXACT, LABEL_APPROX, LABEL_APPROX_CONTEXT = "exact", "approximate", "exact on approximate context"
LABEL_NO_TOKENS = "no tokens"
"""An answer's label: no substitution; some; none, but on a KV cache computed with some; no token was written."""


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """Loading, at least once a second. `total` 0 means: not known. `unit` is "B", "tok" or ""."""

    stage: str
    done: int
    total: int
    unit: str = "B"


@dataclass(frozen=True, slots=True)
class EngineReady:
    """The model is loaded and warmed up."""

    model_name: str
    model_type: str
    num_layers: int
    """MoE layers."""
    num_experts: int
    """Routed experts of the widest MoE layer."""
    top_k: int
    context_tok: int
    effective: tuple[tuple[str, str], ...]
    """The effective configuration, as (name, value) for a person."""
    notices: tuple[str, ...] = ()
    """Things the user should know: the demo's limits, a second instance, what was switched off and why."""
    load_s: float = 0.0
    thinking_choices: tuple[str, ...] = ()
    """Values of `Submit.thinking`: () where the chat template has no such switch; ("off", "on"); or efforts, least
    first, such as ("low", "medium", "high")."""
    request_id: int | None = None
    """Of the `Load`."""


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """Prefill, at least once a second and once at its start."""

    request_id: int
    done_tok: int
    total_tok: int
    reused_tok: int
    """Tokens whose KV was kept from the turn before."""
    note: str = ""
    """For the user: why the cache could not be reused; else empty."""
    left_out_messages: int = 0
    """The oldest messages that were left out, so that the prompt fits."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Newly decoded text. May be empty when a token completes no character."""

    request_id: int
    text: str
    num_tok: int
    """Tokens written since the answer began, thinking included."""
    is_thinking: bool = False
    """The text belongs to what the model thinks before it answers."""


@dataclass(frozen=True, slots=True)
class ModeChanged:
    """The mode changed; inside an answer, from token `at_tok` on."""

    mode: str
    request_id: int | None
    at_tok: int | None


@dataclass(frozen=True, slots=True)
class TurnStats:
    """The record of one answer, stored with it."""

    prompt_tok: int
    reused_tok: int
    new_tok: int
    ttft_ms: float | None
    tpot_ms: float | None
    """Mean over the answer's tokens after the first."""
    tpot_p50_ms: float | None
    tpot_p95_ms: float | None
    link_wait_ms: float | None
    """Time spent waiting for the link in decode (exposed copy); None without a second token."""
    counters: Counters
    """Of this answer alone."""
    prefill_bytes: int
    """Bytes copied to the device during prefill."""
    decode_bytes: int
    label: str
    prefill_path: str
    """How prefill got its experts."""
    link: str
    """The link as measured, or as emulated, for a person."""
    thinking_tok: int = 0
    """Tokens of `new_tok` that were thinking, their marks included."""
    thinking_ms: float | None = None
    """From the first token of the thinking to its end; None: the model did not think."""
    left_out_messages: int = 0
    """The oldest messages of the conversation that were left out, so that the prompt fitted."""
    compute_ms: float | None = None
    """Decode time spent in the model's forward, apart from `link_wait_ms` and `overhead_ms`; the three add up to the
    time from the first token to the last. None: no second token."""
    overhead_ms: float | None = None
    """Decode time spent on what is neither the model's arithmetic nor a wait: prediction, policy, bookkeeping,
    sampling, detokenising, events."""
    times_the_limit: float | None = None
    """TPOT as a multiple of the physical limit over these tokens; None: not computed."""
    runs_on: str = ""
    """Back end and precision: what an exact answer is exact to. Empty in older records."""


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The answer is complete, for `reason`."""

    request_id: int
    reason: str
    stats: TurnStats
    text: str
    """The whole answer, without the thinking."""
    thinking: str = ""
    """What the model thought before it answered."""
    failure: Failed | None = None
    """Where the reason is ERROR: what went wrong while the answer was written. No Failed is sent for it: every request
    ends with exactly one TurnEnded, TaskEnded or Failed."""


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """Progress of a long-running task (verify, bench)."""

    request_id: int
    stage: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """A long-running task is done. `report` holds JSON-serialisable values; `lines` is the same for a person."""

    request_id: int
    is_ok: bool
    report: dict[str, object]
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProfileState:
    """A domain's profile for the loaded model."""

    domain: str
    expected_hit_rate: float | None
    """By its replayed curves, at the present slots; None for a profile built without answers."""
    num_prompts: int
    problem: str = ""
    """Why it cannot be used; empty: it can."""


@dataclass(frozen=True, slots=True)
class Profiles:
    """All profiles of the loaded model: after loading, and whenever they change."""

    profiles: tuple[ProfileState, ...]


@dataclass(frozen=True, slots=True)
class DomainSet:
    """The domain changed, and the cache was warmed by its profile."""

    domain: str
    num_warmed: int | None
    """Experts brought in; None: there is no profile, and the cache stays as it was."""
    expected_hit_rate: float | None


@dataclass(frozen=True, slots=True)
class StrategySet:
    """The loaded model runs under another strategy; its expert cache is empty."""

    strategy: str
    effective: tuple[tuple[str, str], ...]
    """The value in effect of every setting, as (name, value)."""


@dataclass(frozen=True, slots=True)
class TokensCounted:
    """What was asked for by CountTokens: tokens by text, in its order."""

    request_id: int
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """Something went wrong. `request_id` None: the engine itself, or a load without an id. Details are in the log."""

    request_id: int | None
    title: str
    message: str
    hint: str
    is_fatal: bool
    """The engine cannot continue; it must be started again."""
    kind: str = ""
    """What a program can act on: "context_full" when the conversation does not fit; "unloaded" when the model that was
    loaded is not loaded any more; else empty."""
    prompt_tok: int = 0
    """With "context_full": tokens of the conversation."""
    context_tok: int = 0
    """With "context_full": tokens the context holds."""

    @property
    def in_full(self) -> str:
        """What happened and what to do about it, in a line."""
        return f"{self.title}: {self.message} {self.hint}".strip()


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the user should know, outside of any request. Nothing failed."""

    message: str
    hint: str = ""
    """What to do about it."""


Event = (
    LoadProgress
    | EngineReady
    | PrefillProgress
    | TextDelta
    | ModeChanged
    | TurnEnded
    | TaskProgress
    | TaskEnded
    | Profiles
    | DomainSet
    | StrategySet
    | TokensCounted
    | Notice
    | Failed
)
