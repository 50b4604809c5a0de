"""What a run is asked for and how it says what it measured: JSON on the command line, JSON lines on standard output.

A side writes one object a line as soon as it knows something, so that a killed run still tells how far it came.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from engine.api import Message
from engine.child_process import answers_on_stdout, end_with_parent
from engine.config import EngineConfig

Tell = Callable[[dict[str, Any]], None]
MIN_STEPS: Final = 8


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question, as messages and as the text that the file's chat template makes of them."""

    messages: tuple[Message, ...]
    rendered: str
    num_tok: int


@dataclass(frozen=True, slots=True)
class SideRequest:
    """One run of one side."""

    prompt: Prompt
    config: EngineConfig
    """The model is the file; threads, context and, in a group, the budget are set."""
    new_tok: int
    decode_limit_s: float = 20.0
    """Writing ends early, after `MIN_STEPS` tokens at least, where it takes longer: a median needs no more."""
    is_repacked: bool = False
    """llama.cpp copies the weights into the layout its kernels like best; else the file is mapped as it is."""
    procs_file: str = ""
    """A memory group's list of processes, which the side joins before anything else; empty: none."""

    def to_json(self) -> str:
        """For the side's command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> SideRequest:
        """What `to_json` wrote."""
        fields = json.loads(text)
        prompt = fields["prompt"]
        messages = tuple(Message(**message) for message in prompt["messages"])
        fields["prompt"] = Prompt(messages, prompt["rendered"], prompt["num_tok"])
        fields["config"] = EngineConfig(**fields["config"])
        return cls(**fields)


def begin_side() -> tuple[SideRequest, Tell]:
    """A side's first lines: it ends with its parent, joins its group, and keeps standard output for what it tells."""
    parent_pid, text = int(sys.argv[1]), sys.argv[2]
    end_with_parent(parent_pid)
    request = SideRequest.from_json(text)
    if request.procs_file:
        Path(request.procs_file).write_text(str(os.getpid()))
    answers = answers_on_stdout()
    return request, lambda told: print(json.dumps(told), file=answers, flush=True)


def peak_rss_bytes(pid: int) -> int:
    """The most memory a living process has held, mapped files that were in memory included; 0 where unknown."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
