"""Recording what the routers do."""

from __future__ import annotations

from pathlib import Path

from engine.commands.routing_recording import record_routing
from tests.architectures.test_matrix import CHUNK_TOK, open_model
from tests.architectures.tiny import save_checkpoint


def ignore(stage: str, done: int, total: int) -> None:
    pass


def test_a_prompt_whose_last_chunk_is_one_token_is_recorded(tmp_path: Path) -> None:
    engine = open_model(save_checkpoint(tmp_path / "m", "qwen3_moe"), residency=0.5)
    try:
        prompt = " ".join(f"w{3 + number % 100}" for number in range(CHUNK_TOK - 1))
        trace = record_routing(engine, "model", "words", [prompt], 3, ignore)
        assert trace.is_prefill.sum() == CHUNK_TOK + 1
    finally:
        engine.close()
