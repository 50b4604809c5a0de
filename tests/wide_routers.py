"""Routers of the shapes that large models have, with random weights: 64 to 256 experts, thousands of dimensions."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import AutoConfig
from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2TopkRouter
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3TopkRouter
from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoeTopkRouter
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssTopKRouter
from transformers.models.olmoe.modeling_olmoe import OlmoeTopKRouter
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeTopKRouter


class WideRouter(NamedTuple):
    """Which router class, and the settings that decide its shape."""

    make: Any
    model_type: str
    settings: dict[str, Any]


def _routed(num_experts: int, top_k: int, hidden: int, **more: Any) -> dict[str, Any]:
    return {
        "num_experts": num_experts,
        "num_local_experts": num_experts,
        "n_routed_experts": num_experts,
        "num_experts_per_tok": top_k,
        "hidden_size": hidden,
        **more,
    }


WIDE = {
    "qwen3_moe 128/8": WideRouter(Qwen3MoeTopKRouter, "qwen3_moe", _routed(128, 8, 2048)),
    "olmoe 64/8": WideRouter(OlmoeTopKRouter, "olmoe", _routed(64, 8, 2048)),
    "gpt_oss 128/4": WideRouter(GptOssTopKRouter, "gpt_oss", _routed(128, 4, 1024)),
    "glm4_moe 128/8": WideRouter(Glm4MoeTopkRouter, "glm4_moe", _routed(128, 8, 1024, n_group=1, topk_group=1)),
    "deepseek_v3 256/8, 4 of 8 groups": WideRouter(
        DeepseekV3TopkRouter, "deepseek_v3", _routed(256, 8, 1024, n_group=8, topk_group=4)
    ),
    "deepseek_v2 160/6, 3 of 8 groups": WideRouter(
        DeepseekV2TopkRouter,
        "deepseek_v2",
        _routed(160, 6, 1024, n_group=8, topk_group=3, topk_method="group_limited_greedy"),
    ),
}


def make_router(wide: WideRouter, dtype: torch.dtype, seed: int) -> nn.Module:
    """Rows of unequal length, as training leaves them, and biases that decide now and then."""
    generator = torch.Generator().manual_seed(seed)
    router: nn.Module = wide.make(AutoConfig.for_model(wide.model_type, **wide.settings)).eval()
    with torch.no_grad():
        for value in (*router.parameters(), *router.buffers()):
            drawn = torch.randn(value.shape, generator=generator)
            if value.dim() == 2:
                lengths = 0.5 + torch.rand(len(value), 1, generator=generator)
                value.copy_(drawn * lengths / value.shape[1] ** 0.5)
            else:
                value.copy_(drawn * 0.1)
    return router.to(dtype)
