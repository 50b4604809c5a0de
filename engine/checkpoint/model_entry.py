"""What a menu says of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from engine.checkpoint.format_shares import shares_of
from engine.checkpoint.gguf.header import GgufFile
from engine.checkpoint.stored_tensors import Placed


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

    def shares(self) -> tuple[tuple[str, float], ...]:
        """(format, its share of the bytes), the largest first; without those of less than a hundredth."""
        return shares_of((tensor.dtype, tensor.num_bytes) for _, tensor in self.tensors)


Examine = Callable[[GgufFile | FolderHeaders], "Examined"]
"""Of a GGUF file, or of a checkpoint folder, of which it raises nothing."""


class Examined(NamedTuple):
    """What a closer look at a header says. `problem` empty: nothing speaks against it."""

    problem: str = ""
    backend: str = ""
    costs: Costs | None = None
    has_tokenizer: bool = False
    """One was given beside the file."""
