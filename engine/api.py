"""The narrow seam between a user interface and the engine's process.

    client = EngineClient(log_path)       starts nothing yet
    client.start()                        spawns the process; torch begins to import
    client.send(Load(config))             -> LoadProgress ... EngineReady | Failed
    client.send(Submit(1, messages))      -> PrefillProgress ... TextDelta ... TurnEnded | Failed
    client.drain() / client.wait_event()  events in order; `client.snapshot` is the latest state
    client.close()                        gone within two seconds

Importing this module loads neither torch nor transformers nor textual.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.config import RECORDED_TOK, EngineConfig, SamplingConfig, check_mode, check_strategy


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation. `role` is system, user or assistant."""

    role: str
    content: str
    thinking: str = ""
    """What the assistant thought before it answered; the chat template decides whether the model sees it again."""


@dataclass(frozen=True, slots=True)
class Load:
    """Load a model, replacing the one that is loaded. Its end (EngineReady, Failed) has the same id."""

    config: EngineConfig
    request_id: int | None = None


@dataclass(frozen=True, slots=True)
class Submit:
    """Answer the last message of a conversation. One answer at a time; others wait their turn."""

    request_id: int
    messages: tuple[Message, ...]
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    thinking: str | None = None
    """One of `EngineReady.thinking_choices`; None: the template's own default."""
    continues: bool = False
    """The last message is the assistant's partial answer: continue it. Events hold the added text only. An answer with
    thinking and no text continues as thinking. If it is the answer that was just written, the model continues from its
    exact tokens, as if it had not stopped."""
    trims_oldest: bool = False
    """Where the conversation does not fit: leave out the oldest turns, never the system message or the last question,
    until the prompt and a reserve for the answer fit (an eighth of the context, at least 32 tokens, at most those asked
    for). The events say how many messages were left out. Without it, or where even the last question does not
    fit: Failed, kind "context_full"."""
    recomputes: bool = False
    """Compute again what was computed under APPROX of the conversation, so that under EXACT the answer is exact, not
    only exact on approximate context. What was computed exactly is reused."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop an answer or a task; None: whatever is running, loading included. The partial answer is kept."""

    request_id: int | None = None


@dataclass(frozen=True, slots=True)
class SetMode:
    """EXACT or APPROX, from the next token on. Raises ConfigError for another mode."""

    mode: str

    def __post_init__(self) -> None:
        check_mode(self.mode)


@dataclass(frozen=True, slots=True)
class Verify:
    """Prove exactness of the loaded model against the unmodified library. Runs outside the engine's budget."""

    request_id: int
    num_tok: int = 32


@dataclass(frozen=True, slots=True)
class BenchOverhead:
    """Time the MoE part of a step and the whole step against plain transformers, interleaved in one run."""

    request_id: int
    num_rounds: int = 30


@dataclass(frozen=True, slots=True)
class BenchPolicies:
    """Compare the residency policies on real prompts, interleaved in one run, against the physical limit."""

    request_id: int
    is_quick: bool = False
    links: tuple[str, ...] = ("A", "own")
    """A: one copy takes 0.95 of a layer's time. B: load-on-demand costs 1.75x all-resident. own: the real link. Or a
    bandwidth, such as 0.5GB/s."""


@dataclass(frozen=True, slots=True)
class BenchStrategies:
    """Compare whole strategies, interleaved in one run: as published, and at equal device bytes."""

    request_id: int
    is_quick: bool = False
    links: tuple[str, ...] = ("A", "own")
    """As those of BenchPolicies, without B."""


@dataclass(frozen=True, slots=True)
class BenchPrediction:
    """Measure how well a later layer's choice is predicted, by hidden state and number of layers ahead."""

    request_id: int
    is_quick: bool = False


@dataclass(frozen=True, slots=True)
class BenchPrefill:
    """Compare the ways prefill gets its experts, by prompt length across the switch to whole layers."""

    request_id: int
    is_quick: bool = False
    links: tuple[str, ...] = ("A", "own")
    """As those of BenchPolicies, without B."""


@dataclass(frozen=True, slots=True)
class BenchDivergence:
    """Measure how far this engine's numbers, and the library's bf16, are from the library in float32."""

    request_id: int
    num_tok: int = 384


Bench = BenchOverhead | BenchPolicies | BenchStrategies | BenchPrediction | BenchPrefill | BenchDivergence


@dataclass(frozen=True, slots=True)
class BenchPeers:
    """Run one GGUF through this engine and through llama.cpp, interleaved, from a cold file each time. Loads nothing
    itself: each run is a process of its own."""

    request_id: int
    config: EngineConfig
    """The model is the file; its budget is set by the limits."""
    limits_bytes: tuple[int | None, ...] = (None,)
    """Memory groups that whole runs are put in, which takes root; None: no limit."""
    num_rounds: int = 3
    prompt_tok: int = 200
    new_tok: int = 32


@dataclass(frozen=True, slots=True)
class CountTokens:
    """Count the tokens of texts as they are inside a message. -> TokensCounted. Waits its turn behind an answer."""

    request_id: int
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetDomain:
    """Set the chat's domain, and warm the expert cache by its profile, where there is one."""

    domain: str


@dataclass(frozen=True, slots=True)
class SetStrategy:
    """Run the loaded model under another strategy, within the same bytes; nothing is loaded again, and the conversation
    stays computed. Answered by StrategySet or Failed. Raises ConfigError for another name."""

    strategy: str

    def __post_init__(self) -> None:
        check_strategy(self.strategy)


@dataclass(frozen=True, slots=True)
class BuildProfile:
    """Record the routing of prompts, and keep it as a domain's profile."""

    request_id: int
    domain: str
    prompts_path: str | None = None
    """A file of prompts; None: those shipped with the domain."""
    num_prompts: int | None = None
    """At most so many; None: all."""
    num_new_tok: int = RECORDED_TOK
    """Tokens written per prompt at most."""
    has_predictor: bool = False
    """Also train the predictor of the next layer's selection on what was recorded; takes minutes."""


@dataclass(frozen=True, slots=True)
class ShowProfile:
    """Describe a domain's profile; None: list all of this model's."""

    request_id: int
    domain: str | None = None
    has_plan: bool = False
    """Also how slots would be shared out by this profile alone, move by move."""


@dataclass(frozen=True, slots=True)
class DeleteProfile:
    """Delete a domain's profile."""

    request_id: int
    domain: str


@dataclass(frozen=True, slots=True)
class RecordTrace:
    """Answer prompts in EXACT mode, and write down which experts every layer chose (see `offload.replay.trace`)."""

    request_id: int
    path: str
    """The file to write, in place of an earlier trace."""
    domain: str
    """Whose shipped prompts are answered; with `prompts_path`, only a name."""
    prompts_path: str | None = None
    num_prompts: int | None = None
    """At most so many; None: all."""
    num_new_tok: int = RECORDED_TOK
    """Tokens written per prompt at most."""


@dataclass(frozen=True, slots=True)
class TuneEviction:
    """Search the weights of history eviction that load least on recorded routing, and check them on other prompts."""

    request_id: int
    trace_paths: tuple[str, ...] = ()
    """Traces of the loaded model; (): every shipped domain's first prompts are answered and recorded."""
    num_prompts: int = 6
    """Of each domain, where they are recorded."""
    num_new_tok: int = RECORDED_TOK
    is_kept: bool = False
    """Keep the weights with the model's profiles, if they load less than the defaults on held-out prompts: they are
    used from the next load on."""


@dataclass(frozen=True, slots=True)
class ResetEviction:
    """Delete the weights kept for a model; loads nothing."""

    request_id: int
    config: EngineConfig


@dataclass(frozen=True, slots=True)
class Plan:
    """Split the byte budget for a configuration, without loading the model."""

    request_id: int
    config: EngineConfig


@dataclass(frozen=True, slots=True)
class Diagnose:
    """Check what an answer depends on: device, memory, link, libraries, model. -> TaskProgress ..., TaskEnded, whose
    report is `{"checks": [{"name", "verdict", "found", "advice"}]}`; verdicts are ok, warn and fail. Loads nothing."""

    request_id: int
    config: EngineConfig


@dataclass(frozen=True, slots=True)
class Close:
    """End the process."""


Command = (
    Load
    | Submit
    | Cancel
    | SetMode
    | CountTokens
    | SetDomain
    | SetStrategy
    | Verify
    | Bench
    | BenchPeers
    | BuildProfile
    | ShowProfile
    | DeleteProfile
    | RecordTrace
    | TuneEviction
    | ResetEviction
    | Plan
    | Diagnose
    | Close
)
