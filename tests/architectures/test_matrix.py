"""Every claimed architecture, loaded without its experts and decoded through k + 1 slots a layer: equal to the
library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.config import EngineConfig
from engine.errors import UnsupportedModelError
from engine.offloaded_model import OffloadedModel
from tests.architectures.tiny import NUM_EXPERTS, SUPPORTED, TOP_K, UNSUPPORTED, VOCAB, save_checkpoint

PROMPT_TOK = (1, 7, 40)
NEW_TOK = 12
CHUNK_TOK = 64


def open_model(folder: Path, **options: Any) -> OffloadedModel:
    """The model offloaded, with k + 1 slots a layer unless told otherwise."""
    options.setdefault("residency", (TOP_K + 1) / NUM_EXPERTS)
    config = EngineConfig(model=str(folder), prefill_chunk_tok=CHUNK_TOK, **options)
    return OffloadedModel(config, folder, lambda progress: None, lambda: False)


def reference(folder: Path) -> Any:
    """The unmodified library's model."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype="auto", experts_implementation="grouped_mm").eval()


def reference_greedy(model: Any, prompt: list[int], num_new_tok: int) -> tuple[list[int], torch.Tensor]:
    """Greedy ids of the unmodified model, and the logits [vocab] at the prompt's end."""
    ids, cache, first, step = [], None, None, torch.tensor([prompt])
    with torch.inference_mode():
        for _ in range(num_new_tok):
            output = model(input_ids=step, cache=cache, use_cache=True, logits_to_keep=1)
            cache, logits = output.cache, output.logits[0, -1]
            first = logits.clone() if first is None else first
            ids.append(int(logits.argmax()))
            step = torch.tensor([[ids[-1]]])
    assert first is not None
    return ids, first


def prompt_of(num_tok: int) -> list[int]:
    generator = torch.Generator().manual_seed(num_tok)
    return torch.randint(3, VOCAB, (num_tok,), generator=generator).tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("name", SUPPORTED)
def test_equal_to_the_library(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path / name, name, dtype)
    plain = reference(folder)
    engine = open_model(folder)
    try:
        model = engine.loaded.model
        assert not [key for key, value in (*model.named_parameters(), *model.named_buffers()) if value.is_meta]
        assert all(
            withheld.module._parameters[key] is None
            for withheld in engine.loaded.modules
            for key in withheld.parameters
        )
        for num_tok in PROMPT_TOK:
            expected_ids, expected_logits = reference_greedy(plain, prompt_of(num_tok), NEW_TOK)
            ids, logits = engine.greedy_ids(prompt_of(num_tok), NEW_TOK)
            assert torch.equal(logits, expected_logits), (
                f"{num_tok} tokens: off by {(logits - expected_logits).abs().max()}"
            )
            assert ids == expected_ids, f"{num_tok} tokens"
        engine.cache.check_integrity()
        counters = engine.cache.total_counters()
        assert counters.routed == (NEW_TOK - 1) * len(PROMPT_TOK) * TOP_K * len(engine.layers)
        assert counters.misses > 0
    finally:
        engine.close()


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_refused_by_name_and_reason(name: str, tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path / name, name)
    with pytest.raises(UnsupportedModelError, match=rf"{name}.*(experts interface|dense model)"):
        open_model(folder)
