"""Damaged GGUF files: an accepted file or a clear error each, in time and within memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gguf_files import write_gguf
from tests.hostile.campaign import CPU_LIMIT_S, GROWTH_LIMIT_BYTES

NUM_SAMPLE = 40
NUM_ALL = 500
_ROOT = Path(__file__).parents[2]
_SMALL = {"layers": 2, "hidden": 32, "expert_ff": 32, "dense_ff": 32, "head_dim": 16, "merges": 30}
Run = Callable[[int, int], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    root = tmp_path_factory.mktemp("gguf")
    (root / "sound").mkdir()
    write_gguf(root / "sound" / "qwen3moe.gguf", "qwen3moe", "Q8_0", **_SMALL)
    write_gguf(root / "sound" / "glm4moe.gguf", "glm4moe", "Q4_0", split_max_tensors=20, **_SMALL)

    def running(first: int, end: int) -> list[dict[str, Any]]:
        command = [sys.executable, "-P", "-m", "tests.hostile.gguf_worker", str(root), str(first), str(end)]
        environment = os.environ | {"PYTHONPATH": str(_ROOT), "MOE_CHAT_HOME": str(root / "home")}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=1500, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return [json.loads(line) for line in done.stdout.splitlines()]

    return running


def check(results: list[dict[str, Any]], count: int) -> None:
    assert len(results) == count
    print(Counter((result["how"], result["kind"]) for result in results))
    problems = [f"{result} -> {problem}" for result in results if (problem := problem_of(result))]
    assert not problems, "\n".join(problems)


def problem_of(result: dict[str, Any]) -> str:
    """Empty: it ended as it should."""
    if result["kind"] == "wrong":
        return "wrong"
    if result["cpu_s"] > CPU_LIMIT_S:
        return "slow"
    if result["growth_bytes"] > GROWTH_LIMIT_BYTES:
        return "large"
    if result["kind"] == "accepted":
        return "the menu disagrees" if result["menu"] else ""
    if not result["hint"] or ".gguf" not in result["message"]:
        return "no file or no hint"
    return "a long message" if len(result["message"]) > 1000 else ""


def test_a_sample_of_cases(run: Run) -> None:
    check(run(0, NUM_SAMPLE), NUM_SAMPLE)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_all_cases(run: Run) -> None:
    check(run(0, NUM_ALL), NUM_ALL)
