"""The demo under every exact variant of the bench: the unmodified model's token ids, however long the prompt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.backends.offloaded_model import OffloadedModel
from engine.commands.bench.policies import VARIANTS
from engine.commands.bench.workload import all_slots
from engine.config import EXACT, FULL_LAYER, RING, EngineConfig
from engine.profiles.prompt_sets import shipped_prompts
from offload.slot_groups import SlotGroups
from tests.architectures.test_matrix import reference, reference_greedy

PROMPT_TOK = (1, 7, 64, 600)
NEW_TOK = 12
CHUNK_TOK = 256


def prompts_of(engine: OffloadedModel) -> list[list[int]]:
    """Text of the shipped long documents, cut at so many tokens."""
    text = "\n\n".join(shipped_prompts("documents"))
    ids = engine.loaded.tokenizer(text)["input_ids"]
    return [ids[:num_tok] for num_tok in PROMPT_TOK]


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("prefill", [FULL_LAYER, RING])
def test_every_exact_variant_of_the_bench_writes_the_librarys_tokens(demo_folder: Path, prefill: str) -> None:
    config = EngineConfig(model=str(demo_folder), residency=0.25, prefill_chunk_tok=CHUNK_TOK, prefill=prefill)
    engine = OffloadedModel(config, demo_folder, lambda progress: None, lambda: False)
    try:
        plain, prompts = reference(demo_folder), prompts_of(engine)
        expected = [reference_greedy(plain, prompt, NEW_TOK, CHUNK_TOK) for prompt in prompts]
        for name, variant in VARIANTS.items():
            if variant.mode != EXACT:
                continue
            policies = {"eviction": variant.eviction, "prefetch": variant.prefetch, "prefetch_depth": variant.depth}
            slots = SlotGroups.per_layer(all_slots(engine)) if variant.is_whole else engine.budget.groups
            engine.rebuild(replace(config, **policies), slots)
            for prompt, (ids, logits) in zip(prompts, expected, strict=True):
                found, found_logits = engine.greedy_ids(prompt, NEW_TOK)
                assert found == ids, f"{name}, {len(prompt)} tokens"
                assert found_logits.equal(logits), f"{name}, {len(prompt)} tokens"
    finally:
        engine.close()
