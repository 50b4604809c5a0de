"""A model of the ggml back end, loaded: what the engine asks of it beside decoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.backends.backend import ExpertStore
from engine.backends.ggml.expert_format import GgmlFormat
from engine.backends.ggml.made_weights import read_whole
from engine.backends.ggml.model_files import ModelFiles
from engine.backends.ggml.model_spec import ModelSpec
from engine.plan.model_plan import ModelPlan
from engine.sampling.defaults import ModelDefaults


class LoadedGgmlModel:
    """See LoadedModel."""

    def __init__(
        self, files: ModelFiles, spec: ModelSpec, formats: list[GgmlFormat], store: ExpertStore, plan: ModelPlan
    ) -> None:
        self.folder, self.model_type = files.path, files.model_type
        self.number_format = files.number_format
        self.tokenizer: Any = files.load_tokenizer()
        self.defaults: ModelDefaults = files.read_defaults()
        self.end_token_sources: Sequence[Mapping[str, Any]] = files.end_token_sources
        self.formats, self.store, self.plan = formats, store, plan
        self.hidden_dim, self.vocabulary_tok = spec.hidden_dim, spec.vocabulary_tok
        self._files, self._spec = files, spec
        self._expert_files = sorted(
            {weight.path for layer in spec.layers for expert in layer.experts for weight in expert.stored()}
        )

    def holds_expert(self, layer: int, expert: int, slot: memoryview) -> bool:
        """See LoadedModel."""
        weights = self._spec.layers[self._spec.moe_layers[layer]].experts[expert]
        for weight, part in zip(weights.stored(), self.formats[layer].parts, strict=True):
            if slot[part.slot_offset : part.slot_offset + weight.num_bytes] != read_whole(weight):
                return False
        return True

    def not_finite(self, on_tensor: Callable[[int, int], None]) -> list[str]:
        """See LoadedModel."""
        return self._files.not_finite(on_tensor)

    def expert_files(self) -> list[Path]:
        """See LoadedModel."""
        return [Path(path) for path in self._expert_files]

    def notices(self) -> list[str]:
        """See LoadedModel."""
        return self._files.notices()
