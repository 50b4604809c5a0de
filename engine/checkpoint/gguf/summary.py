"""What a GGUF file says of its model, and whether that speaks against running it: for menus, and before a load."""

from __future__ import annotations

from typing import Final, NamedTuple

from engine.checkpoint.architectures import DENSE, GGUF_FAMILIES
from engine.checkpoint.format_shares import shares_of
from engine.checkpoint.gguf.header import GgufFile
from engine.checkpoint.gguf.metadata import Metadata
from engine.checkpoint.gguf.values import Strings
from engine.errors import UnsupportedModelError
from offload.bounded_json import shown

_MAX_COUNT = 1 << 20
_WITH_OR_WITHOUT_EXPERTS: Final = "llama"
_TOKENS: Final = "tokenizer.ggml.tokens"


class GgufSummary(NamedTuple):
    """The model by its metadata; None where it does not say."""

    architecture: str
    num_layers: int | None
    num_experts: int | None
    """Routed experts a layer."""
    top_k: int | None
    total_bytes: int
    """Of all parts."""
    formats: tuple[tuple[str, float], ...]
    """How its weights are stored, the largest share of the bytes first."""
    problem: str
    """Why it cannot be run; empty: nothing in the header speaks against it."""


def summary_of(file: GgufFile) -> GgufSummary:
    """Of a header that has been read. Raises CheckpointError and OSError."""
    keys = Metadata(file)

    def count(key: str) -> int | None:
        return keys.integer(key, 0, _MAX_COUNT) if keys.has(key) else None

    return GgufSummary(
        file.architecture,
        count("{arch}.block_count"),
        count("{arch}.expert_count"),
        count("{arch}.expert_used_count"),
        sum(part.stat().st_size for part in file.paths),
        formats_of(file),
        problem_of(file),
    )


def formats_of(file: GgufFile) -> tuple[tuple[str, float], ...]:
    """(format, its share of the bytes), the largest first; without those of less than a hundredth."""
    return shares_of((tensor.type_name, tensor.num_bytes) for tensor in file.tensors.values())


def require_runnable(file: GgufFile, has_tokenizer: bool = False) -> None:
    """Raises UnsupportedModelError for a model that no family runs, and says why. `has_tokenizer`: one was given beside
    the file."""
    if problem := problem_of(file, has_tokenizer):
        hint = f"As GGUF files these are run: {', '.join(GGUF_FAMILIES)}. Use another model's safetensors checkpoint."
        if not problem_of(file, has_tokenizer=True):
            hint = "Name the folder or the Hugging Face id of the model that it was made from: --config DIR-or-id."
        raise UnsupportedModelError(f"{file.paths[0]} cannot be run: {problem}.", hint)


def problem_of(file: GgufFile, has_tokenizer: bool = False) -> str:
    """Why no family runs it; empty: one may. `has_tokenizer`: one was given beside the file."""
    is_known, may_be_dense = file.architecture in GGUF_FAMILIES, file.architecture == _WITH_OR_WITHOUT_EXPERTS
    if (may_be_dense or not is_known) and file.metadata.get(f"{file.architecture}.expert_count", 0) == 0:
        return DENSE
    if not is_known:
        return f"no GGUF family runs the architecture {shown(file.architecture)}"
    unknown = next((tensor for tensor in file.tensors.values() if not tensor.is_known), None)
    if unknown is not None:
        return f"{shown(unknown.name)} is stored as {unknown.type_name}, which is not known"
    if not (has_tokenizer or isinstance(file.metadata.get(_TOKENS), Strings)):
        return f"it carries no tokenizer ({_TOKENS}); --config can name one"
    return ""
