"""From a checkpoint folder to a model on the device with its routed experts left in the host tier.

The order keeps the promise of the byte budget: everything is known from headers and a meta-device model, planned, and
refused where it must be, before a single weight is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from engine.backends.transformers.expert_store import ExpertStore
from engine.backends.transformers.experts_interface import EXPERTS_IMPLEMENTATION, ProbedLayer
from engine.backends.transformers.kv_cache import KvPlan, plan_kv
from engine.backends.transformers.loading_hook import WithheldModule, experts_withheld, is_experts_module
from engine.checkpoint.architectures import DENSE, MISSING_INTERFACE
from engine.checkpoint.index import read_index
from engine.errors import CheckpointError, MoeChatError, UnsupportedModelError
from engine.experts.formats.dense import DENSE_DTYPES, DenseFormat
from offload.errors import OffloadError
from offload.geometry import Geometry, LayerGeometry
from offload.link.slot_pool import page_aligned_bytes

_LAYER_NUMBER = re.compile(r"\.(\d+)\.")


class LoadStopped(Exception):
    """Whoever loads wants no more of it; passes through the library as it is."""


class LoadCancelled(LoadStopped):
    """The user stopped the loading."""


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """What is known of a model before a weight is read."""

    geometry: Geometry
    kv: KvPlan
    resident_bytes: int
    workspace_bytes: int
    model_context_tok: int


@dataclass(slots=True)
class LoadedModel:
    """A model without routed experts, and what is needed to serve them."""

    folder: Path
    model: Any
    tokenizer: Any
    generation_config: GenerationConfig
    modules: list[WithheldModule]
    formats: list[DenseFormat]
    store: ExpertStore
    plan: ModelPlan

    @property
    def model_type(self) -> str:
        return str(self.model.config.model_type)


def load_model(
    folder: Path,
    chunk_tok: int,
    on_plan: Callable[[ModelPlan], None],
    on_read: Callable[[int, int], None],
    is_cancelled: Callable[[], bool] = lambda: False,
) -> LoadedModel:
    """Loads everything but the routed experts.

    `on_plan` sees the plan before any weight is read and may raise to refuse; `on_read(done, total)` counts resident
    bytes and is called from loader threads. Raises UnsupportedModelError, CheckpointError, LoadCancelled.
    """
    config = read_config(folder)
    read_index(folder)
    tokenizer = load_tokenizer(folder)
    found: dict[str, Any] = {}

    def on_index(model: Any, modules: list[WithheldModule], resident_bytes: int) -> None:
        _check_supported(model, modules)
        found["modules"] = modules
        found["plan"], found["formats"] = _plan(model, modules, resident_bytes, chunk_tok)
        on_plan(found["plan"])

    done = 0

    def count(num_bytes: int) -> None:
        nonlocal done
        if is_cancelled():
            raise LoadCancelled
        done += num_bytes
        on_read(done, found["plan"].resident_bytes)

    model = _from_pretrained(folder, config, on_index, count)
    if is_cancelled():
        raise LoadCancelled
    _check_finite(model)
    generation_config = _generation_config(folder, model)
    store = ExpertStore(model, found["modules"], found["formats"])
    return LoadedModel(
        folder,
        model,
        tokenizer,
        generation_config,
        found["modules"],
        found["formats"],
        store,
        found["plan"],
    )


def read_config(folder: Path) -> Any:
    """The checkpoint's configuration. Raises UnsupportedModelError or CheckpointError."""
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # whatever the library's parsers and validators raise
        text = str(error) or type(error).__name__
        if "model type" in text or "trust_remote_code" in text or "Unrecognized model" in text:
            raise UnsupportedModelError(
                f"transformers does not know the architecture of {folder}.",
                "It would need code from the model's folder, which is never run. See the README for what is supported.",
            ) from error
        raise CheckpointError(
            f"{folder / 'config.json'} cannot be read: {' '.join(text.split())}", "Fetch it again."
        ) from error
    quantization = getattr(config, "quantization_config", None)
    if quantization:
        method = (
            quantization.get("quant_method", "unknown") if isinstance(quantization, dict) else quantization.quant_method
        )
        raise UnsupportedModelError(
            f"{folder} is stored in a low-bit format ({method}), which is not read yet.",
            "Use its bf16, fp16 or fp32 checkpoint.",
        )
    return config


def load_tokenizer(folder: Path) -> Any:
    """The checkpoint's tokenizer. Raises CheckpointError."""
    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # the library raises whatever its parsers raise
        raise CheckpointError(
            f"The tokenizer in {folder} cannot be read: {error}", "Fetch the tokenizer files again."
        ) from error


def _from_pretrained(folder: Path, config: Any, on_index: Any, on_read: Callable[[int], None]) -> Any:
    try:
        with experts_withheld(on_index, on_read):
            model, report = AutoModelForCausalLM.from_pretrained(
                folder,
                config=config,
                dtype="auto",
                experts_implementation=EXPERTS_IMPLEMENTATION,
                use_safetensors=True,
                local_files_only=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
    except (MoeChatError, OffloadError, LoadStopped, MemoryError):
        raise
    except Exception as error:  # whatever the library makes of a config that makes no sense
        if "Unrecognized configuration class" in str(error) or "experts implementation" in str(error).lower():
            raise UnsupportedModelError(
                f"{config.model_type!r} is not a causal language model that can be run here.",
                "Pick a Mixture-of-Experts model; see the README.",
            ) from error
        raise CheckpointError(
            f"{folder} cannot be loaded: {error}", "The checkpoint does not fit its config.json; fetch both again."
        ) from error
    wrong = {name: sorted(map(str, keys))[:3] for name, keys in report.items() if keys and name != "unexpected_keys"}
    if wrong:
        raise CheckpointError(f"{folder} does not fit its config.json: {wrong}.", "Fetch the checkpoint again.")
    return model


def _check_supported(model: Any, modules: list[WithheldModule]) -> None:
    name = model.config.model_type
    if not modules:
        has_experts = any("experts" in key for key, _ in model.named_modules())
        reason = MISSING_INTERFACE if has_experts else DENSE
        raise UnsupportedModelError(
            f"{name!r} cannot be run: {reason}.", "Pick a Mixture-of-Experts model; see the README."
        )
    for withheld in modules:
        names = set(withheld.parameters)
        up = "gate_up_proj" if withheld.module.has_gate else "up_proj"
        wanted = {up, "down_proj"} | ({f"{up}_bias", "down_proj_bias"} if withheld.module.has_bias else set())
        if not wanted <= names:
            raise UnsupportedModelError(
                f"{name!r} cannot be run: {withheld.name} holds {sorted(names)}, not {sorted(wanted)}."
            )
        for parameter in withheld.parameters.values():
            stored = {part.entry.dtype for parts in parameter.parts.values() for part in parts}
            if parameter.dtype not in DENSE_DTYPES or not stored <= set(DENSE_DTYPES):
                raise UnsupportedModelError(
                    f"{name!r}: {parameter.target} is stored as {sorted(map(str, stored))}, which is not read yet.",
                    "Use its bf16, fp16 or fp32 checkpoint.",
                )


def _plan(
    model: Any, modules: list[WithheldModule], resident_bytes: int, chunk_tok: int
) -> tuple[ModelPlan, list[DenseFormat]]:
    probes = [ProbedLayer() for _ in modules]
    for withheld, probe in zip(modules, probes, strict=True):
        withheld.module.offload_layer = probe  # type: ignore[assignment]
    try:
        kv = plan_kv(model, chunk_tok)
    except Exception as error:  # whatever the library raises on shapes it cannot infer
        raise UnsupportedModelError(
            f"{model.config.model_type!r} cannot be run: its forward fails on shapes ({error})."
        ) from error
    if any(probe.top_k is None for probe in probes):
        idle = [withheld.name for withheld, probe in zip(modules, probes, strict=True) if probe.top_k is None]
        raise UnsupportedModelError(
            f"{model.config.model_type!r} cannot be run: {idle[0]} takes no part in its forward."
        )
    formats: list[DenseFormat] = []
    layers: list[LayerGeometry] = []
    for withheld, probe in zip(modules, probes, strict=True):
        assert probe.top_k is not None
        shapes = {key: (parameter.shape, parameter.dtype) for key, parameter in withheld.parameters.items()}
        layout = DenseFormat(withheld.module, shapes, probe.top_k)
        num_experts = next(iter(withheld.parameters.values())).num_experts
        number = _LAYER_NUMBER.search(f"{withheld.name}.")
        layer_number = int(number[1]) if number else len(layers)
        layers.append(LayerGeometry(layer_number, num_experts, probe.top_k, page_aligned_bytes(layout.slot_bytes)))
        formats.append(layout)
    geometry = Geometry(tuple(layers))
    context_tok = int(getattr(model.config.get_text_config(), "max_position_embeddings", 0) or 1 << 20)
    workspace = _workspace_bytes(model, formats, geometry, chunk_tok)
    return ModelPlan(geometry, kv, _resident_bytes(model, modules), workspace, context_tok), formats


def _resident_bytes(model: Any, modules: list[WithheldModule]) -> int:
    """Bytes of parameters and buffers as the model will hold them: without routed experts, tied weights once."""
    absent = {parameter.target for item in modules for parameter in item.parameters.values()}
    absent |= set(getattr(model, "all_tied_weights_keys", None) or {})
    parameters = {key: value for key, value in model.named_parameters(remove_duplicate=False) if key not in absent}
    return sum(value.nbytes for value in (*parameters.values(), *model.buffers()))


def _workspace_bytes(model: Any, formats: list[DenseFormat], geometry: Geometry, chunk_tok: int) -> int:
    """An upper estimate of a forward's activations: a chunk through the widest layer, masks, and the last logits."""
    config = model.config.get_text_config()
    widest = max(sum(math.prod(part.shape[:1]) for part in layout.layout) for layout in formats)
    top_k = max(layer.top_k for layer in geometry.layers)
    hidden = int(config.hidden_size)
    heads = int(getattr(config, "num_attention_heads", 1)) * int(getattr(config, "head_dim", None) or 128)
    inner = max(int(getattr(config, "intermediate_size", 0) or 0), widest)
    activations = chunk_tok * 4 * (12 * hidden + 6 * heads + 4 * inner + top_k * (2 * widest + 3 * hidden))
    return activations + 24 * int(config.vocab_size) + (48 << 20)


def _check_finite(model: Any) -> None:
    """NaN in a router would send tokens anywhere."""
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


def _generation_config(folder: Path, model: Any) -> GenerationConfig:
    if (folder / "generation_config.json").exists():
        try:
            return GenerationConfig.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError, TypeError) as error:
            raise CheckpointError(
                f"{folder / 'generation_config.json'} cannot be read: {error}", "Fetch it again."
            ) from error
    return GenerationConfig.from_model_config(model.config)
