"""The demo's checkpoint: a dense Llama's GGUF weights carved into experts, as an ordinary `glm4_moe` folder.

Carving only selects rows and columns (see assets/demo/README.md). The weights are streamed to the file one layer at
a time, in the order and with the header that the safetensors library would write, so that building takes little
memory and the file comes out byte for byte the same everywhere.
"""

from __future__ import annotations

import importlib.resources
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.demo.location import WEIGHTS_BYTES
from engine.demo.wheel import IsCancelled, Progress, sha256, stop_if
from engine.errors import DemoBuildError
from engine.events import LoadProgress

NUM_LAYERS, NUM_HEADS, NUM_KV_HEADS, HIDDEN = 30, 9, 3, 576
NUM_EXPERTS, TOP_K, EXPERT_SIZE, SHARED_SIZE, DENSE_SIZE = 16, 2, 288, 1152, 1536

WEIGHTS_FILE = "model.safetensors"
HEADER_BYTES = 211_352
WEIGHTS_SHA256 = "774a229624f1a0ebcb997fc6b4619fb85c86123bac8f4e1f6eee3e4923119d33"
_PIECE_ROWS = 2048
BUILD_STAGE = "building the demo's checkpoint"

Floats = npt.NDArray[np.float32]
Bits = npt.NDArray[np.uint16]
"""bf16, which numpy lacks, as its bit pattern."""

CONFIG: dict[str, object] = {
    "architectures": ["Glm4MoeForCausalLM"],
    "model_type": "glm4_moe",
    "dtype": "bfloat16",
    "vocab_size": 49152,
    "hidden_size": HIDDEN,
    "intermediate_size": DENSE_SIZE,
    "num_hidden_layers": NUM_LAYERS,
    "num_attention_heads": NUM_HEADS,
    "num_key_value_heads": NUM_KV_HEADS,
    "head_dim": HIDDEN // NUM_HEADS,
    "hidden_act": "silu",
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-05,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "use_qk_norm": False,
    # The class rotates half of each head unless told otherwise.
    "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0, "partial_rotary_factor": 1.0},
    "moe_intermediate_size": EXPERT_SIZE,
    "n_routed_experts": NUM_EXPERTS,
    # The shared expert's size is written as a multiple of a routed expert's.
    "n_shared_experts": SHARED_SIZE // EXPERT_SIZE,
    "num_experts_per_tok": TOP_K,
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.0,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 0,
    # The class expects a multi-token-prediction layer unless told otherwise.
    "num_nextn_predict_layers": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
}
GENERATION_CONFIG: dict[str, object] = {
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
    # Greedy decoding runs into loops with a model this small.
    "do_sample": True,
    "temperature": 0.2,
    "top_p": 0.9,
    "repetition_penalty": 1.1,
}


@dataclass(frozen=True, slots=True)
class Carve:
    """The shipped carving plan: the neurons of each expert in each dense feed-forward block, and the routers."""

    shared: npt.NDArray[np.bool_]
    """[layers, neurons]"""
    experts: npt.NDArray[np.bool_]
    """[layers, experts, neurons]; experts overlap."""
    router: Floats
    """[layers, experts, hidden]"""
    bias: Floats
    """[layers, experts], added to the scores for selection only."""


def load_carve() -> Carve:
    """Read the plan from the package's assets."""
    from safetensors import deserialize

    packed = importlib.resources.files("assets").joinpath("demo/carve.safetensors").read_bytes()
    parts = {name: (entry["data"], entry["shape"]) for name, entry in deserialize(packed)}

    def neurons(name: str) -> npt.NDArray[np.bool_]:
        content, shape = parts[name]
        return np.unpackbits(np.frombuffer(content, np.uint8).reshape(shape), axis=-1).astype(np.bool_)

    router = np.frombuffer(parts["router"][0], np.uint16).astype(np.uint32) << 16
    return Carve(
        shared=neurons("shared"),
        experts=neurons("experts"),
        router=router.view(np.float32).reshape(parts["router"][1]),
        bias=np.frombuffer(parts["bias"][0], np.float32).reshape(parts["bias"][1]),
    )


def to_bfloat16(values: Floats) -> Bits:
    """Round to the nearest bf16, ties to even, as torch does. Finite values only."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = np.empty(bits.shape, np.uint16)
    for row in range(0, len(bits), _PIECE_ROWS):
        piece = bits[row : row + _PIECE_ROWS]
        rounded[row : row + _PIECE_ROWS] = (piece + ((piece >> 16) & 1) + 0x7FFF) >> 16
    return rounded


def unpermute(weight: Floats, num_heads: int) -> Floats:
    """Undo llama.cpp's interleaving of the two rotary halves in the rows of a query or key projection."""
    rows, columns = weight.shape
    return weight.reshape(num_heads, rows // num_heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


class DenseModel:
    """The dense model's tensors and vocabulary, read from a GGUF file. Opening one takes three seconds."""

    def __init__(self, path: Path) -> None:
        import gguf

        self._gguf = gguf
        self._reader = gguf.GGUFReader(path)
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}

    def weight(self, name: str) -> Floats:
        """One tensor, dequantised: [out, in]."""
        tensor = self._tensors[f"{name}.weight"]
        weight: Floats = self._gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        return weight

    def field(self, name: str) -> Any:
        """A metadata value: a string, a number or a list of them."""
        return self._reader.fields[name].contents()


def layer_tensors(dense: DenseModel, carve: Carve, layer: int) -> dict[str, Bits]:
    """All bf16 tensors of one layer, by their names inside it."""
    block = f"blk.{layer}"
    gate, up, down = (to_bfloat16(dense.weight(f"{block}.ffn_{name}")) for name in ("gate", "up", "down"))
    tensors = {
        "input_layernorm": to_bfloat16(dense.weight(f"{block}.attn_norm")),
        "post_attention_layernorm": to_bfloat16(dense.weight(f"{block}.ffn_norm")),
        "self_attn.q_proj": to_bfloat16(unpermute(dense.weight(f"{block}.attn_q"), NUM_HEADS)),
        "self_attn.k_proj": to_bfloat16(unpermute(dense.weight(f"{block}.attn_k"), NUM_KV_HEADS)),
        "self_attn.v_proj": to_bfloat16(dense.weight(f"{block}.attn_v")),
        "self_attn.o_proj": to_bfloat16(dense.weight(f"{block}.attn_output")),
    }
    parts = {"shared_experts": carve.shared[layer]}
    parts |= {f"experts.{expert}": neurons for expert, neurons in enumerate(carve.experts[layer])}
    for part, neurons in parts.items():
        tensors[f"mlp.{part}.gate_proj"] = gate[neurons]
        tensors[f"mlp.{part}.up_proj"] = up[neurons]
        tensors[f"mlp.{part}.down_proj"] = down[:, neurons]
    return {f"{name}.weight": tensor for name, tensor in tensors.items()}


def _all_tensors(dense: DenseModel, carve: Carve) -> Iterator[dict[str, Floats | Bits]]:
    """Every tensor of the checkpoint in the file's order, in pieces of a layer: fp32 first, then bf16, by name."""
    order = sorted(range(NUM_LAYERS), key=lambda layer: f"{layer}.")
    for layer in order:
        gate = f"model.layers.{layer}.mlp.gate."
        yield {f"{gate}e_score_correction_bias": carve.bias[layer], f"{gate}weight": carve.router[layer]}
    yield {"model.embed_tokens.weight": to_bfloat16(dense.weight("token_embd"))}
    for layer in order:
        tensors = layer_tensors(dense, carve, layer)
        yield {f"model.layers.{layer}.{name}": tensors[name] for name in sorted(tensors)}
    yield {"model.norm.weight": to_bfloat16(dense.weight("output_norm"))}


def write_safetensors(path: Path, header_bytes: int, pieces: Iterable[Mapping[str, Floats | Bits]]) -> Iterator[int]:
    """Write tensors in the order they come, uint16 as bf16, and yield the bytes that are safely on the disk.

    The header goes to the front at the end, into the `header_bytes` left free for it. Raises OSError.
    """
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    with path.open("xb") as out:
        out.seek(header_bytes)
        for piece in pieces:
            for name, tensor in piece.items():
                begin = out.tell() - header_bytes
                out.write(np.ascontiguousarray(tensor).data)
                dtype = "BF16" if tensor.dtype == np.uint16 else "F32"
                spans = [begin, out.tell() - header_bytes]
                entries[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": spans}
            out.flush()
            os.fsync(out.fileno())
            yield out.tell()
        header = json.dumps(entries, separators=(",", ":")).encode()
        room = header_bytes - 8
        assert room - 8 < len(header) <= room, f"the header takes {len(header)} bytes, not {room}"
        out.seek(0)
        out.write(room.to_bytes(8, "little") + header.ljust(room))
        out.flush()
        os.fsync(out.fileno())


def write_tokenizer(dense: DenseModel, folder: Path) -> None:
    """Write the tokenizer, as its makers define it, and the chat template.

    The GGUF file names the splitting rule only (`smollm`): every digit is a token of its own, then GPT-2's byte-level
    rule. Reading the file with transformers loses the digits.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens, kinds = dense.field("tokenizer.ggml.tokens"), dense.field("tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ")) for merge in dense.field("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = 3
    specials = [token for token, kind in zip(tokens, kinds, strict=True) if kind == control]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in specials])
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {name: tokens[number] for name, number in (("bos", 1), ("eos", 2), ("pad", 2), ("unk", 0))}
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": CONFIG["max_position_embeddings"],
            "clean_up_tokenization_spaces": False,
            **{f"{name}_token": token for name, token in names.items()},
        },
    )
    (folder / "chat_template.jinja").write_text(dense.field("tokenizer.chat_template"), encoding="utf-8")


def _write_json(path: Path, content: Mapping[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def write_checkpoint(weights: Path, folder: Path, progress: Progress, is_cancelled: IsCancelled) -> None:
    """Build the checkpoint in an empty `folder` from the GGUF file `weights`.

    Raises DemoBuildError when the result is not what it must be, WaitCancelled, OSError.
    """
    dense = _open_dense(weights, progress, is_cancelled)
    write_tokenizer(dense, folder)
    _write_json(folder / "config.json", CONFIG)
    _write_json(folder / "generation_config.json", GENERATION_CONFIG)
    path = folder / WEIGHTS_FILE
    for done_bytes in write_safetensors(path, HEADER_BYTES, _all_tensors(dense, load_carve())):
        progress(LoadProgress(BUILD_STAGE, done_bytes, WEIGHTS_BYTES))
        stop_if(is_cancelled)
    if sha256(path, is_cancelled) != WEIGHTS_SHA256:
        raise DemoBuildError(
            "The demo's checkpoint came out with the wrong content, from the right download.",
            "The disk or the memory may be damaged. Try again, on another disk if you can (MOE_CHAT_CACHE names it).",
        )


def _open_dense(weights: Path, progress: Progress, is_cancelled: IsCancelled) -> DenseModel:
    """Open the GGUF file in a thread, so that progress goes on meanwhile."""
    with ThreadPoolExecutor(max_workers=1) as reader:
        opening = reader.submit(DenseModel, weights)
        while not opening.done():
            progress(LoadProgress(BUILD_STAGE, 0, WEIGHTS_BYTES))
            stop_if(is_cancelled)
            wait([opening], timeout=0.5)
        return opening.result()
