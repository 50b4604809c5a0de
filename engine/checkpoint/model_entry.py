"""What a menu says of a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from engine.checkpoint.gguf.header import GgufFile
from engine.checkpoint.stored_tensors import Placed

_WHOLE: Final = 0.995
"""A share that is all but everything is not told."""
_WORTH_NAMING: Final = 0.01
"""Of the bytes: norms and routers in float32 are not what a model is known by."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What a model takes and gives, from its header: an estimate, made before it is loaded."""

    least_bytes: int
    """The smallest budget."""
    budget_bytes: int
    """The budget that the settings give it now; more than `available_bytes` where it does not fit."""
    residency: float | None
    """The share of its routed experts on the device at that budget; None: it does not fit."""
    available_bytes: int


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model that could be chosen. What its config.json does not say is None, or empty."""

    name: str
    location: str
    """What `EngineConfig.model` takes: `demo`, a folder, a GGUF file, or a hub id."""
    is_supported: bool
    reason: str
    """Why it cannot be run; empty: nothing speaks against it."""
    architecture: str = ""
    """The model type, such as qwen3_moe."""
    num_layers: int | None = None
    """Decoder layers."""
    num_experts: int | None = None
    """Routed experts a layer."""
    top_k: int | None = None
    total_bytes: int | None = None
    """Of the files of weights that are there."""
    formats: str = ""
    """How its weights are stored, `Q4_K 72%, Q6_K 27%`; of a folder where ggml runs it."""
    backend: str = ""
    """What would run it; empty: not known before it is loaded."""
    place: str = ""
    """Whose folder it was found in, such as LM Studio."""
    costs: Costs | None = None


class FolderHeaders(NamedTuple):
    """A checkpoint folder, and every tensor of its files."""

    folder: Path
    tensors: Sequence[Placed]

    def shares(self) -> list[tuple[str, float]]:
        """(format, its share of the bytes), the largest first; without those of less than a hundredth."""
        sizes: Counter[str] = Counter()
        for _, tensor in self.tensors:
            sizes[tensor.dtype] += tensor.num_bytes
        total = sizes.total() or 1
        return [(name, size / total) for name, size in sizes.most_common() if size >= _WORTH_NAMING * total]


Examine = Callable[[GgufFile | FolderHeaders], "Examined"]
"""Of a GGUF file, or of a checkpoint folder, of which it raises nothing."""


class Examined(NamedTuple):
    """What a closer look at a header says. `problem` empty: nothing speaks against it."""

    problem: str = ""
    backend: str = ""
    costs: Costs | None = None
    has_tokenizer: bool = False
    """One was given beside the file."""


def shares_in_words(shares: Iterable[tuple[str, float]]) -> str:
    """`Q4_K 72%, Q6_K 27%`, or the only format."""
    return ", ".join(f"{name} {share:.0%}" if share < _WHOLE else name for name, share in shares)
