"""The links a bench runs over: the machine's own, a bandwidth, or one found by calibration. All but the first are
emulated."""

from __future__ import annotations

from collections.abc import Sequence

from engine.backends.offloaded_model import OffloadedModel
from engine.config import parse_rate
from engine.errors import ConfigError

OWN = "own"
COPY_HIDDEN, RATIO_OF_PAPER = "A", "B"
"""A: one copy takes 0.95 of a layer's time, as in the paper's best case. B: load-on-demand costs 1.75x all-resident,
the paper's ratio."""
PAPER_RATIO = 1.75
COPY_SHARE_OF_LAYER = 0.95


def check_link(name: str) -> None:
    """Raises ConfigError for a name that is neither a link's nor a bandwidth."""
    if name not in (OWN, COPY_HIDDEN, RATIO_OF_PAPER):
        parse_rate(name)


def check_fixed_links(names: Sequence[str], why: str) -> None:
    """As `check_link`, for benches that do not calibrate B: `why`, a sentence. Raises ConfigError."""
    for name in names:
        check_link(name)
        if name == RATIO_OF_PAPER:
            raise ConfigError(why, "Take A, own or a bandwidth.")


def fixed_rate(name: str, engine: OffloadedModel, layer_s: float) -> float | None:
    """Bytes per second of any link but B; None: the machine's own. `layer_s`: a layer's time in decode."""
    if name == OWN:
        return None
    if name == COPY_HIDDEN:
        return engine.loaded.plan.geometry.largest_expert_bytes / (COPY_SHARE_OF_LAYER * layer_s)
    return parse_rate(name)


def link_label(name: str, rate: float | None) -> str:
    """The link for a person; says so if it is emulated."""
    return f"link {name}, emulated {rate / 1e9:.2f} GB/s" if rate else "the machine's own link"
