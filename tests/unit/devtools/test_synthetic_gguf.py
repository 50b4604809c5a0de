"""A synthetic GGUF is what it says: sizes, types, a tokenizer, and no two experts alike."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

gguf = pytest.importorskip("gguf")

from devtools.synthetic_gguf.file import write_gguf  # noqa: E402
from devtools.synthetic_gguf.precision import Role, stored_type  # noqa: E402
from devtools.synthetic_gguf.shapes import SHAPES, Shape  # noqa: E402
from devtools.synthetic_gguf.vocabulary import Vocabulary, read_vocabulary  # noqa: E402

SMALL = Shape("qwen3moe", 2, 64, 2, 1, 32, 4, 2, 32)
SHARED = Shape("glm4moe", 2, 64, 2, 1, 32, 4, 2, 32, 64)


@pytest.fixture
def vocabulary(tmp_path: Path) -> Vocabulary:
    tokens = {"<|im_start|>": 0, "<|im_end|>": 1, "a": 2, "b": 3, "ab": 4}
    added = [{"id": number, "content": token, "special": True} for token, number in list(tokens.items())[:2]]
    split = {"type": "Sequence", "pretokenizers": [{"type": "Digits"}, {"type": "ByteLevel"}]}
    stored = {
        "model": {"type": "BPE", "vocab": tokens, "merges": [["a", "b"]]},
        "added_tokens": added,
        "pre_tokenizer": split,
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(stored))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}")
    return read_vocabulary(tmp_path)


def written(path: Path, shape: Shape, vocabulary: Vocabulary, seed: int = 0) -> dict[str, np.ndarray]:
    size = write_gguf(path, "small", shape, "f32", vocabulary, seed, lambda done, total: None)
    assert size == path.stat().st_size
    reader = gguf.GGUFReader(path)
    assert reader.fields["general.architecture"].contents() == shape.family
    assert reader.fields["tokenizer.ggml.tokens"].contents() == vocabulary.tokens
    assert reader.fields["tokenizer.ggml.merges"].contents() == ["a b"]
    assert reader.fields["tokenizer.ggml.eos_token_id"].contents() == 1
    assert reader.fields["tokenizer.chat_template"].contents() == vocabulary.chat_template
    return {tensor.name: np.array(tensor.data) for tensor in reader.tensors}


def test_sizes_are_the_shapes_and_no_two_experts_are_alike(tmp_path: Path, vocabulary: Vocabulary) -> None:
    tensors = written(tmp_path / "small.gguf", SMALL, vocabulary)
    assert tensors["blk.1.ffn_down_exps.weight"].shape == (4, 64, 32)
    assert tensors["blk.0.attn_output.weight"].shape == (64, 64)
    assert tensors["blk.0.attn_k_norm.weight"].shape == (32,)
    experts = [
        tensors[f"blk.{layer}.ffn_{part}_exps.weight"][expert].tobytes()
        for layer in range(2)
        for part in ("gate", "up")
        for expert in range(4)
    ]
    assert len(set(experts)) == len(experts)
    assert not (tmp_path / "small.gguf.part").exists()


def test_no_control_token_is_ever_the_most_probable(tmp_path: Path, vocabulary: Vocabulary) -> None:
    output = written(tmp_path / "small.gguf", SMALL, vocabulary)["output.weight"]
    assert not output[:2].any()
    assert output[2:].any(axis=1).all()


def test_glm_has_shared_experts_and_a_selection_bias(tmp_path: Path, vocabulary: Vocabulary) -> None:
    tensors = written(tmp_path / "glm.gguf", SHARED, vocabulary)
    assert tensors["blk.0.ffn_gate_shexp.weight"].shape == (64, 64)
    assert tensors["blk.0.exp_probs_b.bias"].shape == (4,)
    assert "blk.0.attn_q_norm.weight" not in tensors


@pytest.mark.parametrize("shape", ["tiny-gpt-oss", "tiny-deepseek2"])
def test_the_family_finds_every_key_and_tensor(shape: str, tmp_path: Path, vocabulary: Vocabulary) -> None:
    from engine.backends.ggml.families import read_spec
    from engine.backends.ggml.gguf_model import GgufFiles

    written(tmp_path / "small.gguf", SHAPES[shape], vocabulary)
    spec = read_spec(GgufFiles(tmp_path / "small.gguf").stored)
    assert len(spec.moe_layers) == SHAPES[shape].num_layers - SHAPES[shape].num_dense
    assert spec.rope.divisors


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path, vocabulary: Vocabulary) -> None:
    paths = [tmp_path / name for name in ("one", "again", "other")]
    for path, seed in zip(paths, (0, 0, 1), strict=True):
        written(path, SMALL, vocabulary, seed)
    one, again, other = (path.read_bytes() for path in paths)
    assert one == again != other


def test_consecutive_embeddings_of_a_topic_are_alike() -> None:
    from devtools.synthetic_gguf.routing import Directions

    directions = Directions(0, 512, 256)
    rows = np.concatenate(list(directions.embeddings()))
    assert np.allclose((rows**2).mean(), 1, atol=0.1)
    same_topic = directions._topics[:, None] == directions._topics[None]
    likeness = rows @ rows.T / 256
    off_diagonal = ~np.eye(512, dtype=bool)
    assert likeness[same_topic & off_diagonal].mean() == pytest.approx(0.68, abs=0.05)
    assert likeness[~same_topic].mean() == pytest.approx(0.34, abs=0.05)


def test_q4_k_m_spends_six_bits_where_llamacpp_does() -> None:
    down = [stored_type("q4_k_m", Role.EXPERT_DOWN, layer, 12, 768) for layer in range(12)]
    more = [layer for layer, stored in enumerate(down) if stored is gguf.GGMLQuantizationType.Q6_K]
    assert more == [0, 3, 6, 9, 10, 11]
    assert stored_type("q4_k_m", Role.OUTPUT, 0, 12, 2048) is gguf.GGMLQuantizationType.Q6_K
    assert stored_type("q4_k_m", Role.EMBEDDING, 0, 12, 2048) is gguf.GGMLQuantizationType.Q4_K
    assert stored_type("q4_k_m", Role.EXPERT, 0, 12, 2048) is gguf.GGMLQuantizationType.Q4_K
    assert stored_type("q4_k_m", Role.EXPERT, 0, 30, 576) is gguf.GGMLQuantizationType.Q5_0
    assert stored_type("q4_0", Role.VALUE, 0, 12, 2048) is gguf.GGMLQuantizationType.Q8_0


def test_a_bank_of_blocks_is_quantised_like_the_library_does() -> None:
    pytest.importorskip("xllamacpp")
    from devtools.synthetic_gguf.quantiser import quantise

    values = np.random.default_rng(0).standard_normal((700, 256), np.float32)
    for stored in (
        gguf.GGMLQuantizationType.Q4_0,
        gguf.GGMLQuantizationType.Q8_0,
        gguf.GGMLQuantizationType.Q4_K,
        gguf.GGMLQuantizationType.Q6_K,
    ):
        back = gguf.dequantize(quantise(values, stored), stored)
        assert np.abs(back - values).mean() < 0.1


def test_known_shapes_fit_the_types_they_are_written_in() -> None:
    for shape in SHAPES.values():
        for columns in (shape.hidden, shape.expert_size, shape.num_heads * shape.head_dim):
            stored = stored_type("q4_k_m", Role.EXPERT, 0, shape.num_layers, columns)
            assert columns % gguf.GGML_QUANT_SIZES[stored][0] == 0
