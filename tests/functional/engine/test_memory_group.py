"""The plan holds, seen from outside: an engine in a memory group of its budget, on wide attention and long prompts.

Whatever goes over the group's limit is killed by the system. Needs root and memory groups of version 1 or 2.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.config import format_bytes
from tests.architectures.wide import CONTEXT_TOK, WIDE, save_wide
from tests.functional.engine.running_engine import wait_until

GROUPS = Path("/sys/fs/cgroup/memory")
ROOT = Path(__file__).parents[3]
LONG = [[2000, 4], [7900, 8]]
"""Questions as [words, tokens of the answer]."""
_ROLES_TOK = 2
"""`User:` before a question and `Assistant:` behind it: these models have no chat template."""
OPTIONS = {"residency": 0.5, "backend": "transformers"}


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Path]:
    """An empty memory group; skips where there can be none."""
    if not (GROUPS / "memory.limit_in_bytes").exists():
        pytest.skip("there are no memory groups of version 1 here")
    folder = GROUPS / f"moe-chat-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"a memory group cannot be made: {error.strerror}; it takes root")
    yield folder
    wait_until(lambda: not (folder / "cgroup.procs").read_text())
    folder.rmdir()


def drive(group: Path, folder: Path, options: dict[str, Any], questions: list[list[int]]) -> dict[str, Any]:
    """What came of it; a killed engine is an assertion's message."""
    command = [sys.executable, "-m", "tests.functional.engine.group_driver", str(group), str(folder)]
    run = subprocess.run(
        [*command, json.dumps(options), json.dumps(questions)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def require_inside(name: str, found: dict[str, Any]) -> None:
    parts = {key: format_bytes(value) for key, value in found["parts"].items()}
    held = f"{format_bytes(found['peak_bytes'])} of {format_bytes(found['budget_bytes'])}"
    print(f"{name}: peak {held}; {parts}; {found['effective']['prefill']}")
    assert found["peak_bytes"] <= found["budget_bytes"], f"{name}: {held}, {parts}"
    assert all(reason == "length" for reason, *_ in found["answers"]), found["answers"]


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", WIDE)
def test_wide_attention_and_long_prompts_stay_inside(name: str, group: Path, tmp_path: Path) -> None:
    folder = save_wide(tmp_path / "model", name)
    found = drive(group, folder, {**OPTIONS, "context_tok": CONTEXT_TOK}, LONG)
    require_inside(name, found)
    assert [prompt_tok - _ROLES_TOK for _, prompt_tok, _ in found["answers"]] == [words for words, _ in LONG]


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_twenty_questions_in_a_row_stay_inside(group: Path, tmp_path: Path) -> None:
    folder = save_wide(tmp_path / "model", "qwen3_moe")
    questions = [[50 + 60 * (number % 5), 12] for number in range(20)]
    require_inside("twenty questions", drive(group, folder, {**OPTIONS, "context_tok": 2048}, questions))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_short_context_of_wide_latent_attention_stays_inside(group: Path, tmp_path: Path) -> None:
    folder = save_wide(tmp_path / "model", "deepseek_v3")
    require_inside("deepseek_v3", drive(group, folder, {**OPTIONS, "context_tok": 1024}, [[900, 4]]))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_ggml_stays_inside(group: Path, tmp_path: Path) -> None:
    folder = save_wide(tmp_path / "model", "qwen3_moe")
    options = {**OPTIONS, "context_tok": CONTEXT_TOK, "backend": "ggml"}
    require_inside("qwen3_moe on ggml", drive(group, folder, options, LONG))
