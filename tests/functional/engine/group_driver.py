"""Run in a process of its own: puts itself into a memory group, starts an engine there, and asks.

    python group_driver.py GROUP FOLDER CONFIG QUESTIONS

GROUP is an empty memory group, CONFIG the fields of an EngineConfig and QUESTIONS a list of [words, new tokens], both
as JSON. The group's limit is the engine's budget and what this process holds itself. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from engine.api import Plan
from engine.config import EngineConfig
from engine.events import TaskEnded
from tests.functional.engine import running_engine
from tests.functional.engine.running_engine import RunningEngine

_SLACK_BYTES = 16 << 20
"""Two processes do not begin with the same number of pages."""


def planned_bytes(engine: RunningEngine, folder: Path, options: dict[str, Any]) -> int:
    """The budget that a plan of these options comes to, by an engine of its own."""
    engine.client.start()
    engine.client.send(Plan(1, EngineConfig(model=str(folder), **options)))
    budget_bytes = engine.until(TaskEnded).report["budget_bytes"]
    engine.client.close()
    assert isinstance(budget_bytes, int)
    return budget_bytes


def main() -> None:
    group, folder = Path(sys.argv[1]), Path(sys.argv[2])
    (group / "cgroup.procs").write_text(str(os.getpid()))
    running_engine.PATIENCE_S = 1700
    engine = RunningEngine(folder / "engine.log")
    own_bytes = int((group / "memory.usage_in_bytes").read_text())
    options = json.loads(sys.argv[3])
    try:
        budget_bytes = planned_bytes(engine, folder, options) + _SLACK_BYTES
        (group / "memory.limit_in_bytes").write_text(str(budget_bytes + own_bytes))
        engine.client.start()
        options |= {"memory_bytes": budget_bytes, "residency": None, "compute_threads": 1}
        ready = engine.load(folder, **options)
        answers = []
        for number, (num_words, num_tok) in enumerate(json.loads(sys.argv[4])):
            words = " ".join(f"w{3 + (number + at * 7) % 120}" for at in range(num_words))
            ended = engine.ask(number, words, max_new_tok=num_tok)
            answers.append([ended.reason, ended.stats.prompt_tok, ended.stats.new_tok])
        memory = engine.until_snapshot(lambda snapshot: snapshot.phase == "idle").memory
    finally:
        engine.client.close()
    found = {
        "budget_bytes": budget_bytes,
        "parts": dict(memory.parts),
        "peak_bytes": memory.peak_rss_bytes,
        "own_bytes": own_bytes,
        "num_refusals": int((group / "memory.failcnt").read_text()),
        "effective": dict(ready.effective),
        "answers": answers,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
