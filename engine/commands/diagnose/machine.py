"""Checks of the machine: device, cores, memory, libraries, disk."""

from __future__ import annotations

import importlib.metadata
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from packaging.requirements import Requirement

from engine.backends.ggml.availability import ggml_problem
from engine.backends.ggml.library import load_library
from engine.checkpoint.catalogue import hub_cache
from engine.commands.diagnose.check import FAIL, OK, WARN, Check
from engine.config import EngineConfig, format_bytes
from engine.demo.location import cache_root
from engine.plan import machine

_PACKAGE = "moe-chat"
_PINNED = ("torch", "transformers")
"""Another version of these may change results, or fail to load a model."""
_LITTLE_MEMORY_BYTES = 2 << 30
_LITTLE_DISK_BYTES = 2 << 30


class MachineExamination:
    """Checks that need no model."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config

    def steps(self) -> Iterator[tuple[str, Callable[[], Check]]]:
        """See Examination."""
        yield "device", self._device
        yield "cores", self._cores
        yield "memory", self._memory
        yield "libraries", self._libraries
        yield "ggml", self._ggml
        yield "disk space", self._disk_space

    def _device(self) -> Check:
        if torch.accelerator.is_available():
            kind = str(torch.accelerator.current_accelerator())
            name = torch.cuda.get_device_name() if torch.cuda.is_available() else kind
            return Check("device", WARN, f"{name} is there and is not used: models run on the processor.")
        found = "no accelerator: the device is a capped pool in memory, and the link is the disk"
        return Check("device", OK, found)

    def _cores(self) -> Check:
        cores, asked = machine.num_cores(), self._config.compute_threads
        threads = f"{asked} compute threads asked for" if asked else "compute threads are tried out at load"
        found = f"{cores} cores for this process; {threads}; {self._config.link_threads} link threads"
        if asked and asked > cores:
            return Check("cores", WARN, found, "Ask for at most as many compute threads as there are cores.")
        if cores == 1:
            return Check("cores", WARN, found, "Computing and copying share one core: give the process another one.")
        return Check("cores", OK, found)

    def _memory(self) -> Check:
        free, limit = machine.available_bytes() - machine.rss_bytes(), machine.group_limit_bytes()
        found = f"{format_bytes(free)} free of {format_bytes(machine.total_bytes())}"
        if limit is not None:
            found += f", limited to {format_bytes(limit)} by the process's memory group"
        if free < _LITTLE_MEMORY_BYTES:
            return Check("memory", WARN, found, "Close other programs, or raise the group's limit.")
        return Check("memory", OK, found)

    def _libraries(self) -> Check:
        required = [Requirement(line) for line in importlib.metadata.requires(_PACKAGE) or () if "extra ==" not in line]
        wrong = [wanted for wanted in required if not wanted.specifier.contains(_version(wanted.name) or "0", True)]
        seen = ", ".join(f"{name} {_version(name)}" for name in _PINNED)
        if not wrong:
            return Check("libraries", OK, f"{seen}; all as this release wants them")
        found = ", ".join(
            f"{wanted.name} is {_version(wanted.name) or 'missing'}, not {wanted.specifier}" for wanted in wrong
        )
        verdict = FAIL if any(wanted.name in _PINNED for wanted in wrong) else WARN
        return Check("libraries", verdict, found, "pip install " + " ".join(f"'{wanted}'" for wanted in wrong))

    def _ggml(self) -> Check:
        problem = ggml_problem()
        if problem:
            advice = "Until then GGUF files are refused, and safetensors checkpoints run on transformers."
            return Check("ggml", WARN, problem, advice)
        return Check("ggml", OK, f"{load_library().label}: products of every format are right on this processor")

    def _disk_space(self) -> Check:
        places = {"demo cache": cache_root(), "hub cache": hub_cache()}
        free = {name: shutil.disk_usage(_existing(path)).free for name, path in places.items()}
        found = ", ".join(f"{format_bytes(num_bytes)} free for the {name}" for name, num_bytes in free.items())
        if min(free.values()) < _LITTLE_DISK_BYTES:
            return Check("disk space", WARN, found, "Free some, or move the caches: MOE_CHAT_CACHE and HF_HOME.")
        return Check("disk space", OK, found)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path
