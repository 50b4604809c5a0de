"""Which model types of the pinned transformers release can be run, known without importing it.

Loading decides by the model itself; this is the same truth for whoever must not load one. A test holds both together.
"""

from __future__ import annotations

_WITH_INTERFACE = """
    afmoe aria_text axk1 axk2 bailing_hybrid beam cohere2_moe deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 dots1
    dots3_note dots3_note_text ernie4_5_moe exaone_moe flex_olmo flint gemma4 gemma4_text glm4_moe glm4_moe_lite
    glm_moe_dsa gpt_oss granitemoe granitemoe_swa granitemoehybrid granitemoeshared hunyuan_v1_moe hy_v3 hy_v4
    inkling2_loop_text inkling2_text inkling_text jamba kimi_linear kolibri1 laguna lara_mini lfm2_moe mellum
    mimo_v2_flash minimax minimax_m2 minimax_m3_vl_text mixtral nemotron_h olmoe phimoe qwen2_moe qwen3_5_moe
    qwen3_5_moe_text qwen3_moe qwen3_next qwen4_exp qwen4_exp_text solar_open zaya
"""
_WITHOUT_INTERFACE = "bamba dbrx doge jetmoe llama4 llama4_text longcat_flash"

EXPERTS_INTERFACE = frozenset(_WITH_INTERFACE.split())
"""Causal language models whose experts class carries the experts interface."""

NO_EXPERTS_INTERFACE = frozenset(_WITHOUT_INTERFACE.split())
"""Causal language models that have experts and no interface to them."""

GGUF_FAMILIES = (
    *("qwen3moe", "qwen2moe", "glm4moe", "olmoe", "llama", "granitemoe"),
    *("dots1", "ernie4_5-moe", "hunyuan-moe", "hy_v3", "minimax-m2", "gpt-oss", "deepseek2"),
    *("qwen3next", "qwen35moe"),
)
"""Architectures, by their names in GGUF files, that the ggml back end runs."""

MISSING_INTERFACE = "its experts class does not carry the experts interface of transformers"
DENSE = "it is a dense model: there are no routed experts to offload"
ANOTHER_MODEL = "Pick another Mixture-of-Experts model; docs/models.md lists what can be run."
"""The hint where a model cannot be run, whatever its files."""
"""Why a model type cannot be run."""
