"""The ggml back end: inspects a model of a known family, loads its resident weights, and decodes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from engine.backends.ggml.compute import Compute, Scratch
from engine.backends.ggml.decoder import GgmlDecoder
from engine.backends.ggml.embedding import Embedding
from engine.backends.ggml.expert_format import GgmlFormat
from engine.backends.ggml.expert_slots import STAGING_SLOTS, geometry_of, slot_layout
from engine.backends.ggml.expert_store import open_expert_store, reading_bytes
from engine.backends.ggml.families import read_spec
from engine.backends.ggml.kv_cache import KV_TYPES, require_whole_blocks
from engine.backends.ggml.library import load_library
from engine.backends.ggml.loaded_model import LoadedGgmlModel
from engine.backends.ggml.lookahead import GgmlLookahead
from engine.backends.ggml.memory_needs import chunk_needs
from engine.backends.ggml.model_files import open_model_files
from engine.backends.ggml.model_spec import StoredWeight
from engine.backends.ggml.routing import LogitsTap, Routing
from engine.backends.ggml.weights import ResidentWeights
from engine.backends.ggml.whole_step import WholeStep, can_be_whole
from engine.experts.layer import MoeLayer
from engine.experts.step_state import StepState
from engine.lookahead.forms import PredictionForm, Way
from engine.lookahead.prefetching import Prefetching
from engine.plan import machine
from engine.plan.model_plan import ChunkNeeds, ModelPlan
from offload.budget import BudgetPlan
from offload.errors import WaitCancelled
from offload.residency.cache import ExpertCache

_RUNTIME_MARGIN_BYTES = 40 << 20
"""What numpy and ggml allocate while they run: ggml compiles nothing, unlike oneDNN."""


class GgmlBackend:
    """See Backend."""

    name = "ggml"

    def __init__(
        self,
        model: Path,
        is_cancelled: Callable[[], bool],
        config_folder: Path | None = None,
        kv_type: str = "f16",
    ) -> None:
        """Inspects a checkpoint folder, or a GGUF file with what a `config_folder` adds to it. Raises
        UnsupportedModelError, CheckpointError, ConfigError, WaitCancelled."""
        self._ggml = load_library()
        self.label = self._ggml.label
        self._files = open_model_files(model, config_folder)
        self._spec = spec = read_spec(self._files.stored)
        if is_cancelled():
            raise WaitCancelled("Stopped.")
        self._weights, self._kv_type = ResidentWeights(spec), KV_TYPES[kv_type]
        require_whole_blocks(self._ggml, spec, self._kv_type)
        self.plan = ModelPlan(
            geometry=geometry_of(spec),
            resident_bytes=self._weights.num_bytes,
            conversion_bytes=reading_bytes(spec),
            model_context_tok=spec.context_tok,
            staging_slots=STAGING_SLOTS,
            may_stage_layers=False,
            runtime_margin_bytes=_RUNTIME_MARGIN_BYTES,
        )
        self._compute: Compute | None = None
        self._decode_scratch: Scratch | None = None

    def needs_of(self, chunk_tok: int) -> ChunkNeeds:
        """See Backend."""
        return chunk_needs(self._ggml, self._spec, chunk_tok, self._kv_type)

    def forms(self) -> list[PredictionForm]:
        """See Backend: every router is asked in a graph."""
        return [PredictionForm(Way.SHORT) for _ in self._spec.moe_layers]

    def load(
        self,
        budget: BudgetPlan,
        on_read: Callable[[int, int], None],
        is_cancelled: Callable[[], bool],
        check_tokenizer: Callable[[Any], None],
    ) -> None:
        """See Backend."""
        spec, done = self._spec, 0

        def count(num_bytes: int) -> None:
            nonlocal done
            if is_cancelled():
                raise WaitCancelled("Stopped.")
            done += num_bytes
            on_read(done, self.plan.resident_bytes)

        self._compute = compute = Compute(self._ggml)
        self._scratch = Scratch(self._ggml)
        formats = []
        for number in spec.moe_layers:
            layout, sample = slot_layout(spec.layers[number]), spec.layers[number].experts[0]
            formats.append(GgmlFormat(self._ggml, compute, self._scratch, sample, layout, spec.top_k, spec.activation))
        store = open_expert_store(spec, budget.keeps_files_cached)
        self.loaded = LoadedGgmlModel(self._files, spec, formats, store, self.plan)
        check_tokenizer(self.loaded.tokenizer)
        self._weights.load(count)
        self._weights.transpose(self._ggml, compute, self._scratch)

    def prepare(self, budget: BudgetPlan, state: StepState) -> None:
        """See Backend."""
        spec, compute = self._spec, self._compute
        assert compute is not None, "loaded before"
        is_tied = spec.output.name == spec.embedding.name
        table = self._weights.address(spec.embedding) if is_tied else None
        embedding = Embedding(self._ggml, compute, self._scratch, spec, table)
        routings = [self._routing(number) for number in spec.moe_layers]
        self.decoder = GgmlDecoder(
            *(self._ggml, spec, self._place, embedding, compute, self._scratch, routings, state),
            *(budget.context_tok, budget.chunk_tok, self._kv_type),
        )
        for each in self.loaded.formats:
            each.take_input_from(*self.decoder.expert_input)
        self.lookahead: GgmlLookahead = self.decoder.lookahead
        self.taps: Sequence[LogitsTap] = self.decoder.taps

    def _routing(self, number: int) -> Routing:
        bias = self._spec.layers[number].correction_bias
        return Routing(self._spec.router, self._spec.top_k, None if bias is None else self._weights.float32(bias))

    def _place(self, weight: StoredWeight) -> tuple[int, int]:
        return self._weights.address(weight), self._weights.type_of(weight)

    def measure_workspace(self, needs: ChunkNeeds, budget: BudgetPlan) -> int:
        """See Backend. Graphs at the longest context: their work memory depends on it."""
        if not machine.reset_peak_rss():
            return budget.workspace_bytes
        before_bytes = machine.rss_bytes()
        length_tok = self.decoder.run_at(budget.context_tok)
        taken_bytes = machine.peak_rss_bytes(since_reset=True) - before_bytes
        return budget.workspace_bytes + max(taken_bytes - needs.workspace.at(length_tok), 0)

    def bind(self, number: int, layer: MoeLayer) -> None:
        """See Backend."""
        self.decoder.layers[number] = layer

    def connected(self, cache: ExpertCache, prefetching: Prefetching) -> None:
        """See Backend. Places what lives within the experts' decode graphs, once for all layers."""
        if self._decode_scratch is not None:
            self._decode_scratch.close()
        self._decode_scratch = Scratch(self._ggml)
        self._decode_scratch.allocate(*(graph for each in self.loaded.formats for graph in each.graphs))
        self.decoder.ask_in_graphs(prefetching.targets if prefetching.forecaster is self.lookahead else [])
        if self.decoder.ranks_in_graphs and can_be_whole(self.loaded.formats, cache, prefetching):
            self.decoder.whole = WholeStep(self._ggml, self._spec, cache, self.loaded.formats)

    def unbind(self) -> None:
        """See Backend."""
        self.decoder.layers.clear()
        self.decoder.drop_whole()
        for each in self.loaded.formats:
            each.close()

    def set_threads(self, num_threads: int) -> None:
        """See Backend."""
        assert self._compute is not None, "loaded before"
        self._compute.set_threads(num_threads)

    @property
    def num_threads(self) -> int:
        """See Backend."""
        return self._compute.num_threads if self._compute is not None else 1

    @property
    def computed_s(self) -> float:
        """Seconds spent in graphs, all of them, monotonic."""
        return self._compute.computed_s if self._compute is not None else 0.0

    def time_step(self, past_tok: int) -> int:
        """See Backend."""
        return self.decoder.time_step(past_tok)

    def close(self) -> None:
        """See Backend."""
        if hasattr(self, "decoder"):
            self.decoder.close()
        if hasattr(self, "loaded"):
            for each in self.loaded.formats:
                each.close()
            self.loaded.store.close()
        if self._decode_scratch is not None:
            self._decode_scratch.close()
        if self._compute is not None:
            self._scratch.close()
            self._compute.close()
