"""Which type each matrix is stored in, by the name of a mixture."""

from __future__ import annotations

from enum import StrEnum

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, LlamaFileType


class Role(StrEnum):
    """What a matrix does, as far as a mixture cares."""

    EMBEDDING = "embedding"
    OUTPUT = "output"
    ATTENTION = "attention"
    VALUE = "value"
    EXPERT = "expert"
    EXPERT_DOWN = "expert down"
    SHARED = "shared expert"
    SHARED_DOWN = "shared expert down"


FILE_TYPES = {
    "q4_0": LlamaFileType.MOSTLY_Q4_0,
    "mxfp4": LlamaFileType.MOSTLY_MXFP4_MOE,
    "q8_0": LlamaFileType.MOSTLY_Q8_0,
    "q4_k_m": LlamaFileType.MOSTLY_Q4_K_M,
    "f16": LlamaFileType.MOSTLY_F16,
    "f32": LlamaFileType.ALL_F32,
}
"""`q4_0`, `mxfp4`: routed experts in that, everything else in Q8_0. `q4_k_m`: as llama.cpp's quantiser mixes it. The
others: one type throughout. Norms, biases and routers are F32 in all of them."""

_FALLBACK: dict[GGMLQuantizationType, GGMLQuantizationType] = {
    GGMLQuantizationType.Q4_K: GGMLQuantizationType.Q5_0,
    GGMLQuantizationType.Q6_K: GGMLQuantizationType.Q8_0,
}
"""What llama.cpp takes where a row is not a whole number of blocks."""


def stored_type(mixture: str, role: Role, layer: int, num_layers: int, num_columns: int) -> GGMLQuantizationType:
    """The type of one matrix. `layer` is of no meaning to the embeddings and the output matrix."""
    match mixture:
        case "q4_0" | "mxfp4":
            is_routed = role in (Role.EXPERT, Role.EXPERT_DOWN)
            return GGMLQuantizationType[mixture.upper() if is_routed else "Q8_0"]
        case "q4_k_m":
            wanted: GGMLQuantizationType = (
                GGMLQuantizationType.Q6_K if _has_more_bits(role, layer, num_layers) else GGMLQuantizationType.Q4_K
            )
            fits = num_columns % GGML_QUANT_SIZES[wanted][0] == 0
            return wanted if fits else _FALLBACK[wanted]
        case _:
            return GGMLQuantizationType[mixture.upper()]


def _has_more_bits(role: Role, layer: int, num_layers: int) -> bool:
    """Whether Q4_K_M spends six bits: on the output matrix, and on values and down-projections in the first and last
    eighth of the layers and every third one between them."""
    if role not in (Role.VALUE, Role.EXPERT_DOWN, Role.SHARED_DOWN):
        return role is Role.OUTPUT
    eighth = num_layers // 8
    return layer < eighth or layer >= 7 * num_layers // 8 or (layer - eighth) % 3 == 2
