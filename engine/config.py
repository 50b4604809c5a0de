"""What the user can set about the engine, validated; light enough for the user interface to import.

Everything here is a frozen dataclass and holds what was asked for; `events.EngineReady.effective` holds what is in
effect.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from engine.errors import ConfigError
from offload.policies.eviction import EVICTION_POLICIES as EVICTION_POLICIES  # the names, read from here by the app
from offload.policies.prefetch import PREFETCHERS as PREFETCHERS
from offload.policies.slot_planning.device_cache import SLOT_PLANS as _SLOT_PLANS
from offload.strategy import STRATEGIES as STRATEGIES
from offload.strategy import strategy_named as strategy_named
from offload.strategy.bundle import AUTO as AUTO
from offload.strategy.bundle import FULL_LAYER as FULL_LAYER
from offload.strategy.bundle import PREFILL_PATHS as PREFILL_PATHS
from offload.strategy.bundle import RING as RING
from offload.strategy.bundle import Strategy

DEMO_MODEL = "demo"
"""The name that stands for the demo model, built on first use."""

EXACT, APPROX = "exact", "approx"
"""The two modes. In APPROX a missed expert of low score may be replaced by a resident one, in decode."""

TRANSFORMERS, GGML = "transformers", "ggml"
"""The back ends: the model library, for every architecture; ggml's kernels, for the families it knows, on the CPU."""

SLOT_PLANS = tuple(_SLOT_PLANS)
"""How slots are distributed: by the model's profiles, where there are any; the same share in every layer; one pool for
all layers; or a fixed number in one pool: one step's experts, two steps', two layers'."""

KV_TYPES = ("f16", "q8_0")
"""Formats of the ggml back end's KV cache: two bytes a value, or blocks of 32 values in 34 bytes. Part of what EXACT
means."""

BACKENDS = (AUTO, TRANSFORMERS, GGML)
"""What runs a model; auto: the fastest that knows it."""

RECORDED_TOK = 48
"""Tokens written per prompt, at most, where routing is recorded, for a profile or a trace."""

_UNITS = {
    "": 1,
    "b": 1,
    "k": 10**3,
    "kb": 10**3,
    "m": 10**6,
    "mb": 10**6,
    "g": 10**9,
    "gb": 10**9,
    "t": 10**12,
    "tb": 10**12,
}
_UNITS |= {"ki": 2**10, "kib": 2**10, "mi": 2**20, "mib": 2**20, "gi": 2**30, "gib": 2**30, "ti": 2**40, "tib": 2**40}


def check_mode(mode: str) -> None:
    """Raises ConfigError for what is not a mode."""
    if mode not in (EXACT, APPROX):
        raise ConfigError(f"Unknown mode {mode!r}.", f"Choose {EXACT} or {APPROX}.")


def check_strategy(strategy: str) -> None:
    """Raises ConfigError for what is not a strategy."""
    if strategy not in STRATEGIES:
        raise ConfigError(f"Unknown strategy {strategy!r}.", f"Choose one of {', '.join(STRATEGIES)}.")


def parse_bytes(text: str) -> int:
    """`6GiB`, `500 MB`, `1.5g` -> bytes. Raises ConfigError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
    if match is None or match[2].lower() not in _UNITS:
        raise ConfigError(f"{text!r} is not a number of bytes.", "Write it like 6GiB, 500MB or 1.5g.")
    num_bytes = float(match[1]) * _UNITS[match[2].lower()]
    if num_bytes >= 2**63:
        raise ConfigError(f"{text[:40]!r} is more bytes than any machine has.", "Write it like 6GiB, 500MB or 1.5g.")
    return int(num_bytes)


def parse_rate(text: str) -> float:
    """`0.5GB/s` or `500MB` -> bytes per second. Raises ConfigError."""
    try:
        rate = parse_bytes(re.sub(r"/s\s*$", "", text))
    except ConfigError:
        rate = 0
    if rate <= 0:
        raise ConfigError(f"{text!r} is not a bandwidth.", "Write it like 0.5GB/s.")
    return float(rate)


def parse_residency(text: str) -> float:
    """`25%` or `0.25` -> the share of routed experts to keep on the device, in (0, 1]. Raises ConfigError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%?)\s*", text)
    share = float(match[1]) / (100 if match[2] else 1) if match else -1.0
    if not 0 < share <= 1:
        raise ConfigError(
            f"{text!r} is not a share of the experts.", "Write it like 25% or 0.25, above 0 and at most 100%."
        )
    return share


def format_bytes(num_bytes: float) -> str:
    """Bytes for a person, in binary units: `5.6 GiB`."""
    value, unit = float(num_bytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}" if value < 100 else f"{value:.0f} {unit}"


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """One engine: a model, a byte budget and the policies. Raises ConfigError when it contradicts itself."""

    model: str = DEMO_MODEL
    """`demo`, a checkpoint folder, a GGUF file, or a Hugging Face id: `owner/model`, `owner/model:Q4_K_M`."""
    backend: str = TRANSFORMERS
    """What runs it."""
    config_source: str | None = None
    """A folder or a Hugging Face id whose tokenizer and settings are used for a GGUF file; None: the file's own."""
    memory_bytes: int | None = None
    """The one byte budget over everything. Exclusive with `residency`."""
    residency: float | None = None
    """Share of the routed experts on the device, in (0, 1]. Exclusive with `memory_bytes`."""
    context_tok: int | None = None
    """Context length; None: what the budget affords, at most the model's own and at most 8192."""
    kv_type: str = "f16"
    """Of the ggml back end; transformers keeps its own."""
    prefill_chunk_tok: int = 256
    """Prompts are computed in chunks of at most this many tokens; part of what EXACT means."""
    mode: str = EXACT
    domain: str | None = None
    """Warm the cache by this domain's profile at load, where there is one."""
    strategy: str = STRATEGIES[0]
    """The bundle of policies; what follows is the strategy's own where it is None."""
    slots: str | None = None
    prefill: str | None = None
    eviction: str | None = None
    prefetch: str | None = None
    prefetch_depth: int | None = None
    """Experts prefetched per layer at most; None: half of the experts that a token is given to, and at least one."""
    alpha: float = 0.05
    """APPROX: a missed expert may be replaced when its selection score is within alpha of the rank-(k+1) score."""
    link_bytes_per_s: float | None = None
    """Emulate a link of this bandwidth; None: the real one."""
    link_threads: int = 3
    compute_threads: int | None = None
    """torch threads; None: every core."""

    def __post_init__(self) -> None:
        if self.memory_bytes is not None and self.residency is not None:
            raise ConfigError("--memory and --residency contradict each other.", "Give one of them.")
        check_mode(self.mode)
        if self.backend not in BACKENDS:
            raise ConfigError(f"Unknown back end {self.backend!r}.", f"Choose one of {', '.join(BACKENDS)}.")
        for what, given, choices in (
            ("strategy", self.strategy, STRATEGIES),
            ("slot plan", self.slots, SLOT_PLANS),
            ("prefill path", self.prefill, PREFILL_PATHS),
            ("eviction policy", self.eviction, EVICTION_POLICIES),
            ("format of a KV cache", self.kv_type, KV_TYPES),
            ("prefetcher", self.prefetch, PREFETCHERS),
        ):
            if given is not None and given not in choices:
                raise ConfigError(f"Unknown {what} {given!r}.", f"Choose one of {', '.join(choices)}.")
        for name, low in (
            ("context_tok", 16),
            ("prefill_chunk_tok", 1),
            ("prefetch_depth", 0),
            ("link_threads", 1),
            ("compute_threads", 1),
        ):
            value = getattr(self, name)
            if value is not None and value < low:
                raise ConfigError(f"{name} is {value}.", f"It must be at least {low}.")
        if not self.alpha >= 0:
            raise ConfigError(f"alpha is {self.alpha}.", "It must not be negative.")
        if self.link_bytes_per_s is not None and not self.link_bytes_per_s > 0:
            raise ConfigError(f"link_bytes_per_s is {self.link_bytes_per_s}.", "It must be above 0.")

    def with_strategy(self, strategy: str) -> EngineConfig:
        """Under another strategy as it is: options that replaced parts of this one do not change it."""
        return replace(self, strategy=strategy, slots=None, prefill=None, eviction=None, prefetch=None)

    @property
    def policies(self) -> Strategy:
        """The parts in effect: the strategy's, with this configuration's in their place."""
        return strategy_named(self.strategy).overridden(self.prefill, self.slots, self.eviction, self.prefetch)


@dataclass(frozen=True, slots=True)
class SamplingConfig:
    """How the next token is drawn. `temperature` 0 is greedy. None means: the model's own default, or off."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    max_new_tok: int | None = None
    stop: tuple[str, ...] = ()
    """Generation ends before any of these strings would be shown."""

    def __post_init__(self) -> None:
        ranges = {
            "temperature": (0, 100),
            "top_p": (0, 1),
            "top_k": (0, 10**9),
            "min_p": (0, 1),
            "repetition_penalty": (1e-3, 100),
            "max_new_tok": (1, 10**9),
        }
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ConfigError(f"{name} is {value}.", f"It must lie between {low:g} and {high:g}.")
