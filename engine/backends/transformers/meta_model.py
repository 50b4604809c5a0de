"""Builds a model without its weights: what the library's `from_pretrained` does before it reads any.

The steps are taken one by one, so that weights come from the files that `engine.checkpoint` chose, nothing else in the
folder is read (adapters, other weight files, code), and the budget can be planned before loading. They use private
parts of transformers, whose signatures a test checks.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.modeling_utils import LoadStateDictConfig, _get_dtype
from transformers.models.auto.auto_factory import _get_model_class
from transformers.monkey_patching import patch_output_recorders
from transformers.utils import ContextManagers

from engine.backends.transformers.experts_interface import EXPERTS_IMPLEMENTATION
from engine.checkpoint.architectures import ANOTHER_MODEL
from engine.checkpoint.index import TensorEntry
from engine.errors import MoeChatError, UnsupportedModelError
from offload.errors import OffloadError


class MetaModel(NamedTuple):
    """A model on the meta device, and how the library would load its weights."""

    model: Any
    load_config: LoadStateDictConfig


def build_on_meta(config: Any, entries: Iterable[TensorEntry]) -> MetaModel:
    """The model that `config` describes, in the number format the library would choose. Allocates no weight.

    Raises UnsupportedModelError for what is no causal language model, or whose definition the library refuses.
    """
    model_class, config = _class_of(copy.deepcopy(config))
    config._experts_implementation = EXPERTS_IMPLEMENTATION
    config, dtype = _get_dtype(_dtype_of(config, entries), None, config, None, None, True)
    try:
        with ContextManagers(model_class.get_init_context(dtype, False, False, None)):
            model = model_class(config)
            patch_output_recorders(model)
    except (MoeChatError, OffloadError, MemoryError):
        raise
    except Exception as error:  # whatever the library makes of a config that makes no sense
        text = " ".join(str(error).split())[:300]
        if "experts implementation" in text.lower() or "experts_implementation" in text.lower():
            raise UnsupportedModelError(
                f"{config.model_type!r} cannot be run: its experts class does not carry the experts interface of "
                "transformers.",
                ANOTHER_MODEL,
            ) from error
        raise UnsupportedModelError(
            f"{config.model_type!r} cannot be built as its config.json describes it: {type(error).__name__}: {text}",
            "The values of config.json do not fit each other; fetch it again.",
        ) from error
    load_config = LoadStateDictConfig(
        dtype=dtype,
        dtype_plan=model._get_dtype_plan(dtype),
        weight_mapping=get_model_conversion_mapping(model, None, None),
        use_safetensors=True,
    )
    return MetaModel(model.eval(), load_config)


def load_weights(meta: MetaModel, tensors: dict[str, Any]) -> dict[str, Any]:
    """Gives the model its weights, in place: `tensors` by checkpoint key, each read when it is sliced. Returns the
    library's report: what was missing, mismatched or unexpected, by kind."""
    model, load_config = meta
    info, _ = PreTrainedModel._load_pretrained_model(model, tensors, None, load_config)
    info = PreTrainedModel._finalize_model_loading(model, load_config, info)
    model.eval()
    report: dict[str, Any] = info.to_dict()
    return report


def _class_of(config: Any) -> tuple[Any, Any]:
    """The model class, and the configuration it takes: of a composite model, its text part."""
    mapping = AutoModelForCausalLM._model_mapping
    if type(config) not in mapping:
        raise UnsupportedModelError(
            f"{config.model_type!r} is not a causal language model that can be run here.",
            ANOTHER_MODEL,
        )
    model_class = _get_model_class(config, mapping)
    text_class = config.sub_configs.get("text_config")
    if text_class is not None and getattr(model_class, "config_class", None) == text_class:
        config = config.get_text_config()
    return model_class, config


def _dtype_of(config: Any, entries: Iterable[TensorEntry]) -> torch.dtype:
    """The number format of `dtype="auto"`: the config's, else that of the first floating tensor stored."""
    if getattr(config, "dtype", None) is not None:
        dtype: torch.dtype = config.dtype if isinstance(config.dtype, torch.dtype) else getattr(torch, config.dtype)
        return dtype
    stored = (entry.dtype for entry in entries)
    floating = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
    return next((dtype for dtype in stored if dtype in floating), torch.float32)
