"""Loads an inspected checkpoint onto the device, without its routed experts, which stay in the host tier.

The byte budget is planned, or refused, before any weight is read: from headers and a model on the meta device (see
`inspection`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from engine.backends.transformers.config_and_tokenizer import load_tokenizer, read_defaults
from engine.backends.transformers.expert_store import ExpertStore
from engine.backends.transformers.inspection import InspectedModel, formats_of
from engine.backends.transformers.meta_model import MetaModel, load_weights
from engine.backends.transformers.stored_weights import WithheldModule, is_experts_module, withhold
from engine.checkpoint.finite_values import tensors_not_finite
from engine.checkpoint.index import TensorEntry
from engine.checkpoint.shards import choose_shards
from engine.errors import CheckpointError, MoeChatError
from engine.experts.formats.dense import DenseFormat
from engine.plan.model_plan import ModelPlan
from engine.sampling.defaults import ModelDefaults
from offload.errors import OffloadError, WaitCancelled


@dataclass(slots=True)
class LoadedModel:
    """A model without routed experts, and what is needed to serve them."""

    folder: Path
    model: Any
    tokenizer: Any
    defaults: ModelDefaults
    modules: list[WithheldModule]
    formats: list[DenseFormat]
    store: ExpertStore
    plan: ModelPlan
    uses_library_cache: bool

    @property
    def model_type(self) -> str:
        return str(self.model.config.model_type)

    @property
    def number_format(self) -> str:
        """The dtype that the library computes in."""
        return str(self.model.dtype).removeprefix("torch.")

    @property
    def hidden_dim(self) -> int:
        return int(self.model.config.get_text_config().hidden_size)

    @property
    def vocabulary_tok(self) -> int:
        return int(self.model.config.get_text_config().vocab_size)

    @property
    def end_token_sources(self) -> list[dict[str, Any]]:
        """The model's configuration, and its text model's."""
        configs = (self.model.config, getattr(self.model.config, "text_config", None))
        return [{"eos_token_id": getattr(config, "eos_token_id", None)} for config in configs if config is not None]

    def holds_expert(self, layer: int, expert: int, slot: memoryview) -> bool:
        """See backend.LoadedModel: as the library converts the expert."""
        memory = torch.frombuffer(slot, dtype=torch.uint8)
        for layout in self.formats[layer].parameters:
            parameter = self.modules[layer].parameters[layout.name]
            parts = parameter.parts[expert]
            value = parameter.convert([part.read() for part in parts], parts, self.model).to(layout.dtype)
            held = memory[layout.slot_offset : layout.slot_offset + layout.num_bytes]
            if not torch.equal(held, value.contiguous().view(torch.uint8).reshape(-1)):
                return False
        return True

    def not_finite(self, on_tensor: Callable[[int, int], None]) -> list[str]:
        """See backend.LoadedModel."""
        return tensors_not_finite(self.folder, on_tensor)

    def expert_files(self) -> list[Path]:
        """The files with routed experts. All other weights are in memory."""
        paths = {
            part.entry.path
            for withheld in self.modules
            for parameter in withheld.parameters.values()
            for parts in parameter.parts.values()
            for part in parts
        }
        return [Path(path) for path in sorted(paths)]

    def notices(self) -> list[str]:
        """What the user should know about the files."""
        return list(choose_shards(self.folder).notices)


class _LazyTensor:
    """A stored tensor that is read when the library indexes it with `[...]`."""

    def __init__(self, entry: TensorEntry, on_read: Callable[[int], None]) -> None:
        self._entry, self._on_read = entry, on_read

    def __getitem__(self, key: Any) -> torch.Tensor:
        tensor = self._entry.read()
        self._on_read(self._entry.num_bytes)
        return tensor if key is Ellipsis else tensor[key]

    def get_shape(self) -> list[int]:
        return list(self._entry.shape)


def load_model(
    inspected: InspectedModel,
    on_read: Callable[[int, int], None],
    is_cancelled: Callable[[], bool] = lambda: False,
    check_tokenizer: Callable[[Any], None] = lambda tokenizer: None,
    is_cached: bool = False,
) -> LoadedModel:
    """Loads everything but the routed experts, whose files `is_cached` leaves in the page cache.

    `on_read(done, total)` counts resident bytes and is called from loader threads; `check_tokenizer` may refuse the
    model by raising, before any weight is read. Raises CheckpointError, WaitCancelled.
    """
    folder, done = inspected.folder, 0
    tokenizer = load_tokenizer(folder)
    check_tokenizer(tokenizer)

    def count(num_bytes: int) -> None:
        nonlocal done
        if is_cancelled():
            raise WaitCancelled("Stopped.")
        done += num_bytes
        on_read(done, inspected.plan.resident_bytes)

    meta = inspected.build()
    defaults = read_defaults(folder, meta.model.config)
    modules = inspected.stored.of_model(meta.model)
    withhold(modules)
    _fill(meta, inspected, count)
    if is_cancelled():
        raise WaitCancelled("Stopped.")
    _check_finite(meta.model)
    formats = formats_of(modules, inspected.top_ks)
    return LoadedModel(
        folder,
        meta.model,
        tokenizer,
        defaults,
        modules,
        formats,
        ExpertStore(meta.model, modules, formats, inspected.places, is_cached),
        inspected.plan,
        inspected.uses_library_cache,
    )


def _fill(meta: MetaModel, inspected: InspectedModel, count: Callable[[int], None]) -> None:
    """Reads the resident weights into the model. Raises CheckpointError for what does not fit."""
    folder = inspected.folder
    tensors = {key: _LazyTensor(entry, count) for key, entry in inspected.stored.resident.items()}
    try:
        report = load_weights(meta, tensors)
    except (MoeChatError, OffloadError, WaitCancelled, MemoryError):
        raise
    except Exception as error:  # whatever the library makes of weights that do not fit
        raise CheckpointError(
            f"{folder} cannot be loaded: {str(error)[:500]}",
            "The checkpoint does not fit its config.json; fetch both again.",
        ) from error
    wrong = {name: sorted(map(str, keys))[:3] for name, keys in report.items() if keys and name != "unexpected_keys"}
    if wrong:
        raise CheckpointError(f"{folder} does not fit its config.json: {wrong}.", "Fetch the checkpoint again.")


def _check_finite(model: Any) -> None:
    """Raises CheckpointError for NaN or infinite values in a router, whose choice would be arbitrary."""
    for name, module in model.named_modules():
        if not is_experts_module(module):
            continue
        parent = model.get_submodule(name.rpartition(".")[0])
        for child in ("gate", "router"):
            router = getattr(parent, child, None)
            values = (
                [*router.named_parameters(), *router.named_buffers()] if isinstance(router, torch.nn.Module) else []
            )
            for key, value in values:
                if not torch.isfinite(value).all():
                    where = f"{name.rpartition('.')[0]}.{child}.{key}"
                    raise CheckpointError(
                        f"{where} holds NaN or infinite values.", "The checkpoint is damaged; fetch it again."
                    )
