"""Checkpoints in FP8: computed as BF16, which is what their codes and scales stand for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.backends.ggml.float8 import write_bfloat16
from engine.backends.ggml.made_weights import read_whole
from engine.backends.ggml.safetensors_model import read_safetensors_model
from engine.config import FULL_LAYER, RING
from engine.errors import CheckpointError, MoeChatError, UnsupportedModelError
from tests.architectures.packed_float8 import pack_matrices
from tests.architectures.test_ggml_exact import answered, kl, open_model
from tests.architectures.test_ggml_families import IDS, logits_of, save


@pytest.fixture(scope="module", params=["deepseek_v3", pytest.param("qwen3_moe", marks=pytest.mark.long)])
def packed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save(tmp_path_factory.mktemp("float8"), request.param)
    pack_matrices(folder, folder.parent / "plain", by_row=request.param == "qwen3_moe")
    return folder


def test_every_code_is_the_library_s() -> None:
    codes = np.arange(256, dtype=np.uint8).reshape(2, 128)
    found = np.empty(256, np.uint16)
    write_bfloat16(codes, np.array([[0.37, 2.0], [1e-3, 77.0]], np.float32), (1, 100), found)
    scales = torch.tensor([[0.37, 2.0], [1e-3, 77.0]]).repeat_interleave(100, 1)[:, :128]
    values = torch.from_numpy(codes).view(torch.float8_e4m3fn).float() * scales
    expected = values.to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16).reshape(-1)
    is_number = ~np.isnan(values.numpy().reshape(-1))
    assert is_number.sum() == 254
    assert np.array_equal(found[is_number], expected[is_number])
    assert (found[~is_number] & 0x7FFF > 0x7F80).all()


def test_matrices_are_the_bfloat16_that_they_stand_for(packed: Path) -> None:
    plain = load_file(packed.parent / "plain" / "model.safetensors")
    made = [weight for weight in read_safetensors_model(packed).weights() if weight.made is not None]
    assert len(made) > 20
    for weight in made:
        assert weight.made is not None
        values = np.frombuffer(read_whole(weight), np.uint16).reshape(weight.shape[::-1])
        expected = plain[weight.made.parts[0].name].to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
        assert np.array_equal(values, expected)


def test_answers_are_those_of_the_plain_values(packed: Path) -> None:
    """Rows that ggml multiplies with BF16 are rounded to BF16, with float32 weights they are not."""
    engine = open_model(packed, residency=0.5)
    try:
        logits = engine.greedy_ids(IDS, 1)[1]
        assert "FP8 as BF16" in engine.loaded.number_format
    finally:
        engine.close()
    expected = logits_of(packed.parent / "plain")
    print(f"KL {kl(expected, logits):.1e}")
    assert kl(expected, logits) < 5e-3


@pytest.mark.parametrize("prefill", [RING, pytest.param(FULL_LAYER, marks=pytest.mark.long)])
def test_few_slots_give_what_the_whole_model_gives(packed: Path, prefill: str) -> None:
    whole = answered(packed, residency=1.0)
    few = answered(packed, residency=0.4, prefill=prefill)
    for (ids, logits), (whole_ids, whole_logits) in zip(few, whole, strict=True):
        assert np.array_equal(logits, whole_logits)
        assert ids == whole_ids


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda weights, scale: weights.pop(scale), UnsupportedModelError),
        (lambda weights, scale: weights.update({scale: weights[scale][:, :1].clone()}), CheckpointError),
        (lambda weights, scale: weights.update({scale: weights[scale].to(torch.uint8)}), UnsupportedModelError),
    ],
)
def test_scales_that_are_missing_or_others(tmp_path: Path, change: object, kind: type[MoeChatError]) -> None:
    folder = save(tmp_path, "qwen3_moe")
    pack_matrices(folder, tmp_path / "plain")
    weights = load_file(folder / "model.safetensors")
    change(weights, "model.layers.1.mlp.experts.3.up_proj.weight_scale_inv")  # type: ignore[operator]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(kind, match="up_proj"):
        read_safetensors_model(folder)
