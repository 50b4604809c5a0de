"""Every setting, declared once: settings screen, file, command line, environment, completion and help are made from it.

To add one: a row here, and for the engine's own a field of `engine.config.EngineConfig` or `SamplingConfig`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

from app.formatting import alert
from app.settings.setting import Kind, Setting, Value
from engine import config

THEME_SYSTEM, THEME_DARK, THEME_LIGHT, THEME_CONTRAST = "system", "dark", "light", "contrast"
START_MENU, START_LAST = "menu", "last"

_CHAT, _SCREEN = "Chat", "Screen"
_MODELS_OWN = "the model's own"
_STRATEGYS_OWN = "the strategy's own"
_DEFAULTS = {field.name: field.default for field in fields(config.EngineConfig)}


def _domains() -> tuple[str, ...]:
    from app.domains.domain import all_domains  # 20 ms: not for `--help`

    return tuple(domain.name for domain in all_domains())


def _engine(
    key: str,
    title: str,
    meaning: str,
    kind: Kind,
    field: str = "",
    *,
    default: Value | None = None,
    unset: str = "",
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    flags: str = "",
    acts: str = "Acts once the model is loaded again.",
) -> Setting:
    """A setting of `EngineConfig`: its field and flag have the setting's name unless told, its default the field's."""
    table, _, name = key.partition(".")
    group, field = "Model and memory" if table == "model" else "Offloading", field or name
    if default is None and isinstance(own := _DEFAULTS[field], str | int | float):
        default = own
    given = tuple(flags.split()) or (_flag(name),)
    return Setting(key, title, meaning, group, kind, default, unset, low, high, choices, given, field, acts)


def _sampling(
    name: str, title: str, meaning: str, kind: Kind, low: float | None, high: float | None, unset: str, field: str = ""
) -> Setting:
    key, flags = f"sampling.{name}", (_flag(name),)
    return Setting(key, title, meaning, "Sampling", kind, None, unset, low, high, (), flags, field or name)


def _app(
    key: str,
    title: str,
    meaning: str,
    group: str,
    kind: Kind,
    default: Value | None = None,
    *,
    unset: str = "",
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] | Callable[[], tuple[str, ...]] = (),
    flags: str = "",
) -> Setting:
    return Setting(key, title, meaning, group, kind, default, unset, low, high, choices, tuple(flags.split()))


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


SETTINGS: tuple[Setting, ...] = (
    _engine("model.name", "Model",
            "The demo, a checkpoint folder, a GGUF file, or a Hugging Face id such as owner/model or"
            " owner/model:Q4_K_M.",
            Kind.TEXT, "model", flags="-m --model"),
    _engine("model.backend", "Back end", "What runs the model; auto takes the fastest that knows it.",
            Kind.CHOICE, default=config.AUTO, choices=config.BACKENDS),
    _engine("model.memory", "Memory", "One budget for weights, KV cache, expert slots, staging and the runtime."
            " Instead of the residency.",
            Kind.BYTES, "memory_bytes", unset="a share of what is free"),
    _engine("model.residency", "Residency", "The share of the routed experts that is kept on the device."
            " Instead of the memory.",
            Kind.SHARE, unset="the demo: 50%; others: what the memory affords"),
    _engine("model.context", "Context", "Tokens of conversation that fit; the KV cache is reserved for all of them.",
            Kind.INTEGER, "context_tok", unset="what the budget affords", low=16),
    _engine("model.kv_type", "KV type",
            "The format of the KV cache: q8_0 takes about half the bytes of f16, and is a little less precise. Of the"
            " ggml back end.",
            Kind.CHOICE, choices=config.KV_TYPES),
    _engine("model.config", "Configuration",
            "For a GGUF file: the folder or Hugging Face id of the model that it was made from, whose tokenizer, chat"
            " template and sampling are used in place of the file's. Files of other kinds have their own.",
            Kind.TEXT, "config_source", unset="the file's own"),
    _app("model.folders", "Model folders",
         "Folders that the model picker looks into: a model, or a folder that holds several.",
         "Model and memory", Kind.FOLDERS, unset="none"),
    _engine("offload.mode", "Mode",
            "How a chat begins: exact, or approximate, where a missed expert of low score may be replaced.",
            Kind.CHOICE, choices=(config.EXACT, config.APPROX), acts="Acts at once."),
    _engine("offload.alpha", "Alpha",
            "Under APPROX: a missed expert is replaced when its score is above the best not chosen one's by this much"
            " at most.",
            Kind.NUMBER, low=0, high=1),
    _engine("offload.strategy", "Strategy",
            "The system that is run: how prompts load experts, which slots there are, what is evicted, what is"
            " prefetched. The next four settings replace parts of it.",
            Kind.CHOICE, choices=config.STRATEGIES,
            acts="Acts from the next answer on; nothing is loaded again."),
    _engine("offload.prefill", "Prefill",
            "How a prompt loads its missing experts: full-layer loads whole layers, ring the experts that are needed,"
            " pipeline the same with one ahead; auto takes full-layer where two buffers are affordable.",
            Kind.CHOICE, unset=_STRATEGYS_OWN, choices=config.PREFILL_PATHS),
    _engine("offload.eviction", "Eviction",
            "Which expert is evicted: by routing history, least recently or least frequently used, by past requests'"
            " activations; or all that the router did not pick.",
            Kind.CHOICE, unset=_STRATEGYS_OWN, choices=config.EVICTION_POLICIES),
    _engine("offload.slots", "Slots",
            "How slots are shared out: by what the model's profiles say, where there are any, the same in every"
            " layer, one pool for all layers; or a fixed number: one step's experts, two steps', two layers'.",
            Kind.CHOICE, unset=_STRATEGYS_OWN, choices=config.SLOT_PLANS),
    _engine("offload.prefetch", "Prefetch",
            "How the experts of the next layers are predicted.",
            Kind.CHOICE, unset=_STRATEGYS_OWN, choices=config.PREFETCHERS),
    _engine("offload.prefetch_depth", "Prefetch depth",
            "Experts prefetched a layer, at most. The prefetchers -floor and -gain use it only until they have measured"
            " how much time a layer leaves.",
            Kind.INTEGER, unset="half of the experts of a token", low=0, high=64),
    _engine("offload.link", "Link",
            "Emulate a link of this bandwidth, to study a slower one. Emulated figures are labelled on screen.",
            Kind.RATE, "link_bytes_per_s", unset="the real link"),
    _engine("offload.threads", "Threads", "Threads that compute.",
            Kind.INTEGER, "compute_threads", unset="every core", low=1, high=1024),
    _engine("offload.link_threads", "Link threads", "Threads that load experts.", Kind.INTEGER, low=1, high=64),
    _sampling("temperature", "Temperature", "0 always takes the likeliest token; higher is more varied.",
              Kind.NUMBER, 0, 100, _MODELS_OWN),
    _sampling("top_p", "Top-p", "Draw among the likeliest tokens that together have this probability.",
              Kind.NUMBER, 0, 1, _MODELS_OWN),
    _sampling("top_k", "Top-k", "Draw among this many of the likeliest tokens; 0 means all.",
              Kind.INTEGER, 0, 10**9, _MODELS_OWN),
    _sampling("min_p", "Min-p", "Leave out tokens less likely than this share of the likeliest one.",
              Kind.NUMBER, 0, 1, _MODELS_OWN),
    _sampling("repetition_penalty", "Repetition penalty", "Above 1, tokens that were used already become less likely.",
              Kind.NUMBER, 0.001, 100, _MODELS_OWN),
    _sampling("seed", "Seed", "The same seed draws the same tokens again.",
              Kind.INTEGER, -(2**63), 2**63 - 1, "another one each time"),
    _sampling("max_tokens", "Max tokens", "The answer ends after so many tokens.",
              Kind.INTEGER, 1, 10**9, "until the model ends it", "max_new_tok"),
    _sampling("stop", "Stop", "The answer ends before any of these texts; on the command line it may be repeated.",
              Kind.TEXTS, None, None, "none"),
    _app("chat.start", "Start", "What the program opens with: the menu of domains, or the chat that was used last.",
         _CHAT, Kind.CHOICE, START_MENU, choices=(START_MENU, START_LAST)),
    _app("chat.domain", "Domain", "The domain that the menu proposes, and a question without a chat is asked in.",
         _CHAT, Kind.CHOICE, "general", choices=_domains, flags="-d --domain"),
    _app("chat.system_prompt", "System prompt",
         "Sent before the first question of a new chat, in place of the domain's.",
         _CHAT, Kind.LONG_TEXT, unset="the domain's", flags="-s --system"),
    _app("chat.preset", "Preset", "Of your presets, the one that a new chat begins with; /preset lists them.",
         _CHAT, Kind.TEXT, unset="none", flags="-p --preset"),
    _app("chat.thinking", "Thinking",
         "Whether, or how hard, a model thinks before it answers, where its template supports that.",
         _CHAT, Kind.CHOICE, unset=_MODELS_OWN, choices=("off", "on", "low", "medium", "high"), flags="--thinking"),
    _app("screen.theme", "Theme", "Colours. `system` follows the background of the terminal.",
         _SCREEN, Kind.CHOICE, THEME_SYSTEM, choices=(THEME_SYSTEM, THEME_DARK, THEME_LIGHT, THEME_CONTRAST)),
    _app("screen.panel_rate", "Panel rate", "How often a second the panels are drawn while the engine works.",
         _SCREEN, Kind.INTEGER, 4, low=1, high=8),
    _app("screen.notify", "Notify",
         "How the end of an answer is told while the terminal is not in front, or when the answer took long: by the"
         " bell, or by a notification of the desktop, which not every terminal shows.",
         _SCREEN, Kind.CHOICE, alert.OFF, choices=alert.KINDS, flags="--notify"),
    _app("screen.notify_after", "Notify after", "An answer took long from so many seconds on.",
         _SCREEN, Kind.INTEGER, 30, low=1, high=86_400),
)  # fmt: skip

ENGINE_SETTINGS = tuple(setting for setting in SETTINGS if setting.is_engine)
SAMPLING_SETTINGS = tuple(setting for setting in SETTINGS if setting.is_sampling)

KEYS_TABLE = "keys"
"""The table of the key map: action ids and keys. What is in it is checked by `app.ui.key_map`."""


def setting_named(key: str) -> Setting | None:
    """The setting with that key."""
    return next((setting for setting in SETTINGS if setting.key == key), None)
