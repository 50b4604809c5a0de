"""Every family of the ggml back end on the same weights: near transformers and llama.cpp, and EXACT in few slots.

`KEYS` has a row for each model type that the back end reads; what is not in it is not proved.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from engine.backends.ggml.families import FAMILIES
from engine.config import FULL_LAYER, RING
from tests.architectures.gguf_conversion import VOCABULARY_TOK, convert
from tests.architectures.test_ggml_exact import answered, kl, open_model
from tests.architectures.tiny import VOCAB, save_checkpoint
from tests.gguf_files import write_gguf
from tests.llama_cpp import has_llama_cpp, llama_logits

KEYS: Final[dict[str, dict[str, Any]]] = {
    "qwen3_moe": {},
    "glm4_moe": {"expert_gating_func": 2},
    "qwen2_moe": {},
    "olmoe": {},
    "mixtral": {},
    "granitemoe": {},
    "granitemoeshared": {},
    "deepseek_v2": {"expert_gating_func": None},
    "deepseek_v3": {},
    "gpt_oss": {"expert_feed_forward_length": 64, "attention.value_length": 32},
    "dots1": {"expert_gating_func": 2},
    "ernie4_5_moe": {},
    "hunyuan_v1_moe": {"expert_feed_forward_length": 96},
    "hy_v3": {"expert_gating_func": 2},
    "minimax_m2": {"expert_gating_func": 2, "expert_feed_forward_length": 96},
    "glm4_moe_lite": {},
    "qwen3_next": {"full_attention_interval": 3},
    "qwen3_5_moe_text": {"full_attention_interval": 3, "rope.dimension_sections": [1, 1, 0, 0]},
}
"""Model types, and what a GGUF file says of them that config.json does not."""
_YARN: Final = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 8.0, "original_max_position_embeddings": 80}
_LATENT: Final = {"kv_lora_rank": 32, "qk_nope_head_dim": 32, "v_head_dim": 32, "qk_rope_head_dim": 32}
CHANGES: Final[dict[str, dict[str, Any]]] = {
    "qwen3_moe": {"rope_parameters": _YARN},
    "glm4_moe": {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}},
    "deepseek_v2": {**_LATENT, "rope_parameters": {**_YARN, "mscale": 0.7, "mscale_all_dim": 0.7}},
    "deepseek_v3": {**_LATENT, "rope_parameters": {**_YARN, "mscale": 1.0, "mscale_all_dim": 1.0}}
    | {"routed_scaling_factor": 2.5},
    "glm4_moe_lite": {**_LATENT, "routed_scaling_factor": 1.8},
    "gpt_oss": {"intermediate_size": 64, "head_dim": 32},
    "qwen2_moe": {"norm_topk_prob": False},
    "dots1": {"num_key_value_heads": 4},  # llama.cpp knows no other
    "hunyuan_v1_moe": {"rope_parameters": {"rope_type": "dynamic", "alpha": 100.0, "factor": 1.0, "rope_theta": 1e4}},
    "minimax_m2": {"rotary_dim": 8},
    "olmoe": {"num_key_value_heads": 4},  # llama.cpp knows no other
    "granitemoe": {"embedding_multiplier": 6.0, "residual_multiplier": 0.4, "attention_multiplier": 0.3}
    | {"logits_scaling": 2.5},
    "granitemoeshared": {"embedding_multiplier": 3.0, "residual_multiplier": 0.6, "attention_multiplier": 0.2}
    | {"logits_scaling": 0.5, "tie_word_embeddings": True},
}
"""Of the tiny configurations: what would otherwise be 1, or not be tried."""
SAMPLE: Final = ("granitemoeshared", "mixtral", "deepseek_v3", "gpt_oss", "qwen3_next")
QUANTS: Final = ("F16", "Q8_0", "Q4_0", "native")
IDS: Final = [(11 * i + 5) % VOCABULARY_TOK for i in range(40)]


def _marked(names: tuple[str, ...] | list[str], sample: tuple[str, ...]) -> list[Any]:
    return [name if name in sample else pytest.param(name, marks=pytest.mark.long) for name in names]


def save(place: Path, name: str, dtype: torch.dtype = torch.float32, **changes: Any) -> Path:
    """A tiny checkpoint with biases that are not 0 and norms that are not 1."""
    changes = {"vocab_size": VOCABULARY_TOK, **CHANGES.get(name, {}), **changes}
    seed = {"hy_v3": 2, "glm4_moe_lite": 1}.get(name, 0)
    """0: the two best logits are equal in float16; the norms' epsilons decide which expert is chosen."""
    folder = save_checkpoint(place / name, name, dtype, seed, num_positions=640, **changes)
    file = folder / "model.safetensors"
    weights = load_file(file)
    for weight in weights.values():
        if weight.dim() == 1:
            weight += 0.2 * torch.randn(weight.shape)
    save_file(weights, file, {"format": "pt"})
    return folder


def logits_of(path: Path, ids: list[int] = IDS) -> torch.Tensor:
    engine = open_model(path, residency=0.5)
    try:
        return engine.greedy_ids(ids, 1)[1]
    finally:
        engine.close()


def test_every_model_type_has_a_row() -> None:
    assert set(KEYS) == {name for family in FAMILIES.values() for name in family.CHECKPOINTS}


@pytest.mark.skipif(not has_llama_cpp(), reason="the wheel xllamacpp is not installed")
@pytest.mark.parametrize("name", _marked(list(KEYS), SAMPLE))
def test_near_transformers_and_llama_cpp_on_the_same_weights(name: str, tmp_path: Path) -> None:
    folder = save(tmp_path, name)
    file = convert(folder, tmp_path / "model.gguf", keys=KEYS[name])
    library = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        expected = library(torch.tensor([IDS])).logits[0, -1]
    references = {"transformers": expected, "llama.cpp": llama_logits(file, IDS)[-1]}
    for path in (file, folder):
        logits = logits_of(path)
        for reference, its_logits in references.items():
            print(f"{name} {path.suffix or 'safetensors'} {reference}: KL {kl(its_logits, logits):.1e}")
            assert kl(its_logits, logits) < 1e-4, reference
            assert int(its_logits.argmax()) == int(logits.argmax()), reference


@pytest.mark.skipif(not has_llama_cpp(), reason="the wheel xllamacpp is not installed")
def test_norms_of_compressed_rows_have_an_epsilon_of_their_own_in_checkpoints(tmp_path: Path) -> None:
    """In the library; llama.cpp has one for all norms."""
    folder = save(tmp_path, "glm4_moe_lite", rms_norm_eps=0.05)
    file = convert(folder, tmp_path / "model.gguf")
    library = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        expected = library(torch.tensor([IDS])).logits[0, -1]
    reference = torch.from_numpy(llama_logits(file, IDS)[-1])
    assert kl(expected, logits_of(folder)) < 1e-4
    assert kl(reference, logits_of(file)) < 1e-4
    assert kl(expected, reference) > 1e-4


@pytest.mark.long
def test_gelu_in_place_of_silu(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path / "qwen2_moe", "qwen2_moe", num_positions=640, hidden_act="gelu")
    ids = [number % VOCAB for number in IDS]
    library = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        expected = library(torch.tensor([ids])).logits[0, -1]
    assert kl(expected, logits_of(folder, ids)) < 1e-4


@pytest.mark.skipif(not has_llama_cpp(), reason="the wheel xllamacpp is not installed")
def test_gate_and_up_in_one_tensor(tmp_path: Path) -> None:
    """As newer GGUF files of some families have it."""
    folder = save(tmp_path, "hy_v3")
    file = convert(folder, tmp_path / "model.gguf", keys=KEYS["hy_v3"], is_fused=True)
    reference, logits = llama_logits(file, IDS)[-1], logits_of(file)
    assert kl(reference, logits) < 1e-4
    assert int(reference.argmax()) == int(logits.argmax())


@pytest.mark.skipif(not has_llama_cpp(), reason="the wheel xllamacpp is not installed")
def test_blocks_that_predict_further_tokens_change_nothing(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "model.gguf", "glm4moe", "F32", layers=3, mtp_layers=1)
    reference, logits = llama_logits(file, IDS)[-1], logits_of(file)
    assert kl(reference, logits) < 1e-4
    assert int(reference.argmax()) == int(logits.argmax())


@pytest.mark.parametrize("prefill", [RING, FULL_LAYER])
@pytest.mark.parametrize("quant", _marked(list(QUANTS), ("Q8_0",)))
@pytest.mark.parametrize("name", _marked(list(KEYS), (SAMPLE[0], "olmoe")))
def test_few_slots_give_what_the_whole_model_gives(name: str, quant: str, prefill: str, tmp_path: Path) -> None:
    model = save(tmp_path, name, torch.bfloat16 if quant == "native" else torch.float32)
    if quant != "native":
        model = convert(model, tmp_path / "model.gguf", quant, KEYS[name])
    whole = answered(model, residency=1.0)
    few = answered(model, residency=0.4, prefill=prefill)
    for (ids, logits), (whole_ids, whole_logits) in zip(few, whole, strict=True):
        assert np.array_equal(logits, whole_logits)
        assert ids == whole_ids
