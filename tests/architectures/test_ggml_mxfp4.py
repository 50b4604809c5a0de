"""gpt-oss with experts in MXFP4: the published kind of checkpoint, and the GGUF file of the same blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.config import FULL_LAYER, RING
from tests.architectures.gguf_conversion import convert
from tests.architectures.packed_experts import pack_experts
from tests.architectures.test_ggml_exact import answered, kl, open_model
from tests.architectures.test_ggml_families import IDS, KEYS, save
from tests.llama_cpp import has_llama_cpp, llama_logits


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save(tmp_path_factory.mktemp("mxfp4"), "gpt_oss")
    pack_experts(folder, folder.parent / "plain")
    return folder


@pytest.fixture(scope="module")
def file(packed: Path) -> Path:
    return convert(packed, packed.parent / "model.gguf", keys=KEYS["gpt_oss"])


@pytest.mark.skipif(not has_llama_cpp(), reason="the wheel xllamacpp is not installed")
def test_near_the_library_and_llama_cpp(packed: Path, file: Path) -> None:
    """ggml rounds the rows that it multiplies with MXFP4 to 8 bits, the library does not."""
    library = AutoModelForCausalLM.from_pretrained(packed.parent / "plain", dtype=torch.float32)
    with torch.inference_mode():
        expected = library(torch.tensor([IDS])).logits[0, -1]
    from_llama_cpp = torch.from_numpy(llama_logits(file, IDS)[-1])
    print(f"llama.cpp library KL {kl(expected, from_llama_cpp):.1e}")
    for path in (packed, file):
        engine = open_model(path, residency=0.5)
        try:
            _, logits = engine.greedy_ids(IDS, 1)
            assert "MXFP4" in engine.loaded.number_format
        finally:
            engine.close()
        print(f"{path.name} KL library {kl(expected, logits):.1e} llama.cpp {kl(from_llama_cpp, logits):.1e}")
        assert kl(expected, logits) < 5e-3
        assert kl(from_llama_cpp, logits) < 5e-3
        assert int(from_llama_cpp.argmax()) == int(logits.argmax())


@pytest.mark.parametrize("prefill", [RING, pytest.param(FULL_LAYER, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", ["native", pytest.param("gguf", marks=pytest.mark.long)])
def test_few_slots_give_what_the_whole_model_gives(packed: Path, file: Path, kind: str, prefill: str) -> None:
    model = packed if kind == "native" else file
    whole = answered(model, residency=1.0)
    few = answered(model, residency=0.4, prefill=prefill)
    for (ids, logits), (whole_ids, whole_logits) in zip(few, whole, strict=True):
        assert np.array_equal(logits, whole_logits)
        assert ids == whole_ids


def test_a_slot_holds_what_is_made_of_the_checkpoint(packed: Path) -> None:
    engine = open_model(packed, residency=1.0)
    try:
        engine.greedy_ids(IDS, 4)
        loaded, store = engine.loaded, engine.loaded.store
        slot = memoryview(np.zeros(loaded.plan.geometry.layers[0].slot_bytes, np.uint8))  # type: ignore[arg-type]
        store.read_into(0, 3, slot)
        assert loaded.holds_expert(0, 3, slot)
        assert not loaded.holds_expert(0, 2, slot)
        assert store.num_direct_layers == 0
    finally:
        engine.close()
