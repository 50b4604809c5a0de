"""Runs cases in the worker and judges what became of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.hostile.mutations import NUM_FILES, Case

CPU_LIMIT_S = 5.0
GROWTH_LIMIT_BYTES = 300 << 20
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Result:
    """A case, what the worker said of it, and what is wrong with that."""

    case: Case
    said: dict[str, Any]

    @property
    def kind(self) -> str:
        """`answered`, `refused`, or what went wrong."""
        return str(self.said["kind"]) if not self.problem else self.problem.split(":")[0]

    @property
    def problem(self) -> str:
        """Empty: an answer, or an error as it should be."""
        said = self.said
        if said["was_run"]:
            return "code was run"
        if said["kind"] in ("wrong", "hang", "crash"):
            return f"{said['kind']}: {said['error']} {said['message'][:300]}"
        if said["cpu_s"] > CPU_LIMIT_S:
            return f"slow: {said['cpu_s']:.1f} s of processor time"
        if said["growth_bytes"] > GROWTH_LIMIT_BYTES:
            return f"large: it grew by {said['growth_bytes'] >> 20} MiB"
        if said["kind"] == "refused":
            return self._problem_of_error()
        if said["menu"]:
            return f"menu disagrees: it ran, and the menu says {said['menu']!r}"
        return ""

    def _problem_of_error(self) -> str:
        message, hint = str(self.said["message"]), str(self.said["hint"])
        if not hint:
            return f"no hint: {message}"
        if len(message) > 1000:
            return f"too long: a message of {len(message)} characters"
        if not any(name in message + hint for name in (self.said["file"], "config.json", ".safetensors", "template")):
            return f"no file: {message[:300]}"
        return ""

    def __str__(self) -> str:
        return f"{self.case} -> {self.problem}"


class Campaign:
    """The worker, and requests to it one after the other."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, cases: Iterable[Case], asks_every: int = 3) -> list[Result]:
        """`asks_every`: each so manieth case loads the model and asks it; the others plan only."""
        return [self._run(case, case.number // NUM_FILES % asks_every == 0) for case in cases]

    def _run(self, case: Case, asks: bool) -> Result:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"case": asdict(case), "asks": asks}), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, f"the worker ended at {case}"
        return Result(case, json.loads(line))


@contextmanager
def campaign(root: Path) -> Iterator[Campaign]:
    """A worker that keeps its files in an empty folder; ended with the block."""
    environment = os.environ | {"PYTHONPATH": str(_ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment |= {"TOKENIZERS_PARALLELISM": "false", "MOE_CHAT_HOME": str(root / "home")}
    with (root / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.hostile.worker", str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
        )
        try:
            yield Campaign(process)
        finally:
            process.kill()
            process.communicate()


def summary(results: Iterable[Result]) -> str:
    """A table: file by file, how many cases ended in which way."""
    counts: dict[str, Counter[str]] = {}
    results = list(results)
    for result in results:
        counts.setdefault(result.case.file, Counter())[result.kind] += 1
    kinds = sorted({kind for counter in counts.values() for kind in counter})
    rows = [f"{'file':<30}" + "".join(f"{kind:>16}" for kind in kinds)]
    for file, counter in sorted(counts.items()):
        rows.append(f"{file:<30}" + "".join(f"{counter[kind] or '-':>16}" for kind in kinds))
    rows.append(f"{'all':<30}" + "".join(f"{sum(counter[kind] for counter in counts.values()):>16}" for kind in kinds))
    slowest = max((result.said["cpu_s"] for result in results), default=0.0)
    largest = max((result.said["growth_bytes"] for result in results), default=0)
    rows.append(f"{len(results)} cases; at most {slowest:.1f} s of processor time and {largest >> 20} MiB of growth")
    return "\n".join(rows)
