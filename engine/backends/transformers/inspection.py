"""Inspects a checkpoint before loading: its architecture, where its tensors are stored, and the memory it needs.

Uses configuration, headers, and a model on the meta device. That model is discarded and loading builds another one, so
that state left behind by the measuring forwards cannot affect it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.backends.transformers.config_and_tokenizer import library_config
from engine.backends.transformers.expert_store import ExpertPlaces, find_places
from engine.backends.transformers.experts_interface import ProbedLayer
from engine.backends.transformers.known_needs import KnownNeeds, measuring_key
from engine.backends.transformers.memory_needs import MemoryNeeds, chunk_needs
from engine.backends.transformers.meta_model import MetaModel, build_on_meta
from engine.backends.transformers.rotary import fix_for_shapes
from engine.backends.transformers.stored_weights import StoredWeights, WithheldModule, sort_weights
from engine.checkpoint.architectures import ANOTHER_MODEL, DENSE, MISSING_INTERFACE
from engine.checkpoint.config_file import read_config_file
from engine.checkpoint.cross_check import check_against_config
from engine.checkpoint.index import TensorEntry, read_index
from engine.errors import MoeChatError, UnsupportedModelError
from engine.experts.formats.dense import DENSE_DTYPES, DenseFormat
from engine.lookahead.feeds import find_router
from engine.lookahead.form_trial import form_of_router
from engine.lookahead.forms import PredictionForm
from engine.plan.model_plan import ModelPlan, NeedsOfChunk
from offload.errors import WaitCancelled
from offload.geometry import Geometry, LayerGeometry, page_aligned_bytes

_LAYER_NUMBER = re.compile(r"\.(\d+)\.")
_NO_CONTEXT_TOK = 1 << 20
"""The longest context of a model whose configuration sets none."""


@dataclass(frozen=True, slots=True)
class InspectedModel:
    """What loading starts from. Holds no weight."""

    folder: Path
    config: Any
    entries: dict[str, TensorEntry]
    stored: StoredWeights
    top_ks: tuple[int, ...]
    """Per MoE layer, the experts its router picks for a token."""
    places: ExpertPlaces
    plan: ModelPlan
    needs_of: NeedsOfChunk
    """The KV cache and the workspace by chunk length; a length that no load has measured yet is measured when it is
    asked for."""
    forms_of: Callable[[], list[PredictionForm]]
    """Per MoE layer, how its experts will be predicted; found by routers of random weights."""
    uses_library_cache: bool
    """The model brings a KV cache class of its own."""

    def build(self) -> MetaModel:
        """Another instance of the model, on the meta device, to be loaded."""
        return build_on_meta(self.config, self.entries.values())


def inspect_model(folder: Path, is_cancelled: Callable[[], bool] = lambda: False) -> InspectedModel:
    """Inspects a folder; reads no weight. Raises UnsupportedModelError or CheckpointError where loading would fail, as
    far as headers and shapes show it, and WaitCancelled."""
    values = read_config_file(folder)
    config = library_config(folder)
    entries = read_index(folder)
    check_against_config(values, {key: entry.shape for key, entry in entries.items()})
    _stop_if(is_cancelled)
    meta = build_on_meta(config, entries.values())
    model = meta.model
    stored = sort_weights(model, entries.values(), meta.load_config.weight_mapping or [])
    _check_supported(model, stored.modules)
    _stop_if(is_cancelled)
    key = measuring_key(values, entries.values())
    needs = KnownNeeds(key, map(_num_experts, stored.modules), lambda: _probed(model, stored.modules))
    _stop_if(is_cancelled)
    formats = formats_of(stored.modules, needs.top_ks)
    geometry = _geometry(stored.modules, formats, needs.top_ks)
    places = find_places(model, stored.modules, formats)
    text = model.config.get_text_config()
    return InspectedModel(
        folder=folder,
        config=config,
        entries=entries,
        stored=stored,
        top_ks=needs.top_ks,
        places=places,
        plan=ModelPlan(geometry, _resident_bytes(model, stored.modules), places.conversion_bytes, _context_tok(model)),
        needs_of=lambda chunk_tok: chunk_needs(needs.of_chunk(chunk_tok), text, formats, geometry, chunk_tok),
        forms_of=lambda: _prediction_forms(model, stored.modules, text),
        uses_library_cache=needs.uses_library_cache,
    )


def _stop_if(is_cancelled: Callable[[], bool]) -> None:
    if is_cancelled():
        raise WaitCancelled("Stopped.")


def formats_of(modules: Sequence[WithheldModule], top_ks: Sequence[int]) -> list[DenseFormat]:
    """How each module's experts lie in slots, and what computes them: bound to the modules as they are now."""
    return [
        DenseFormat(
            withheld.module,
            {name: (parameter.shape, parameter.dtype) for name, parameter in withheld.parameters.items()},
            top_k,
        )
        for withheld, top_k in zip(modules, top_ks, strict=True)
    ]


def _check_supported(model: Any, modules: Sequence[WithheldModule]) -> None:
    name = model.config.model_type
    if not modules:
        has_experts = any("experts" in key for key, _ in model.named_modules())
        reason = MISSING_INTERFACE if has_experts else DENSE
        raise UnsupportedModelError(f"{name!r} cannot be run: {reason}.", ANOTHER_MODEL)
    for withheld in modules:
        names = set(withheld.parameters)
        up = "gate_up_proj" if withheld.module.has_gate else "up_proj"
        wanted = {up, "down_proj"} | ({f"{up}_bias", "down_proj_bias"} if withheld.module.has_bias else set())
        if not wanted <= names:
            raise UnsupportedModelError(
                f"{name!r} cannot be run: {withheld.name} holds {sorted(names)}, not {sorted(wanted)}.",
                ANOTHER_MODEL,
            )
        for parameter in withheld.parameters.values():
            stored = {part.entry.dtype for parts in parameter.parts.values() for part in parts}
            if parameter.dtype not in DENSE_DTYPES or not stored <= set(DENSE_DTYPES):
                raise UnsupportedModelError(
                    f"{name!r}: {parameter.target} is stored as {sorted(map(str, stored))}, which is not read yet.",
                    "Use its bf16, fp16 or fp32 checkpoint.",
                )


def _probed(model: Any, modules: Sequence[WithheldModule]) -> tuple[MemoryNeeds, tuple[int, ...]]:
    """Runs the model on the meta device: its memory needs, and per MoE layer the experts chosen for a token."""
    probes = [ProbedLayer() for _ in modules]
    for withheld, probe in zip(modules, probes, strict=True):
        withheld.module.offload_layer = probe  # type: ignore[assignment]
    fix_for_shapes(model)
    try:
        needs = MemoryNeeds(model, _context_tok(model))
    except MoeChatError:
        raise
    except Exception as error:  # whatever the library raises on shapes it cannot infer
        raise UnsupportedModelError(
            f"{model.config.model_type!r} cannot be run: its forward fails on shapes ({str(error)[:300]}).",
            "The values of config.json do not fit each other, or the architecture needs what shapes cannot tell.",
        ) from error
    top_ks = []
    for withheld, probe in zip(modules, probes, strict=True):
        if probe.top_k is None:
            raise UnsupportedModelError(
                f"{model.config.model_type!r} cannot be run: {withheld.name} takes no part in its forward.",
                ANOTHER_MODEL,
            )
        top_ks.append(probe.top_k)
    return needs, tuple(top_ks)


def _num_experts(withheld: WithheldModule) -> int:
    return next(iter(withheld.parameters.values())).num_experts


def _geometry(modules: Sequence[WithheldModule], formats: Sequence[DenseFormat], top_ks: Sequence[int]) -> Geometry:
    layers: list[LayerGeometry] = []
    for withheld, expert_format, top_k in zip(modules, formats, top_ks, strict=True):
        number = _LAYER_NUMBER.search(f"{withheld.name}.")
        layer_number = int(number[1]) if number else len(layers)
        layers.append(
            LayerGeometry(layer_number, _num_experts(withheld), top_k, page_aligned_bytes(expert_format.slot_bytes))
        )
    return Geometry(tuple(layers))


def _prediction_forms(model: Any, modules: Sequence[WithheldModule], config: Any) -> list[PredictionForm]:
    """Per MoE layer; routers of the same class and shapes are tried once."""
    known: dict[object, PredictionForm] = {}
    forms = []
    for withheld in modules:
        router = find_router(model, withheld.name)
        num_experts = _num_experts(withheld)
        key = (type(router), num_experts, tuple(value.shape for value in router.parameters()) if router else ())
        if key not in known:
            known[key] = form_of_router(router, num_experts, int(config.hidden_size), model.dtype)
        forms.append(known[key])
    return forms


def _context_tok(model: Any) -> int:
    return int(getattr(model.config.get_text_config(), "max_position_embeddings", 0) or _NO_CONTEXT_TOK)


def _resident_bytes(model: Any, modules: Sequence[WithheldModule]) -> int:
    """Bytes of parameters and buffers as the model will hold them: without routed experts, tied weights once."""
    absent = {parameter.target for item in modules for parameter in item.parameters.values()}
    absent |= set(getattr(model, "all_tied_weights_keys", None) or {})
    parameters = {key: value for key, value in model.named_parameters(remove_duplicate=False) if key not in absent}
    return sum(value.nbytes for value in (*parameters.values(), *model.buffers()))
