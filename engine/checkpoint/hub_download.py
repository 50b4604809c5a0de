"""Fetching a model from the Hugging Face hub, in a child process (`hub_child`) that a cancel can end at once.

The child asks for the files' sizes, checks the disk, and downloads; it says so in JSON lines on its standard output.
Files that have arrived whole stay in the hub's cache, and the next try goes on from there. A GGUF file that has not is
gone on with as well (`hub_file`); an unfinished file of safetensors is begun anew, because the hub's library gives
every try a file of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.checkpoint.hub_gguf import hub_name
from engine.child_process import lines_of
from engine.errors import DownloadError, ModelNotFoundError, MoeChatError, UnsupportedModelError
from engine.events import LoadProgress
from offload.errors import WaitCancelled

_POLL_S = 0.25


@dataclass(frozen=True, slots=True)
class DownloadPlan:
    """What a download comes to. `cached_bytes` of `total_bytes` are in the cache already."""

    total_bytes: int
    cached_bytes: int
    blobs: str
    """The folder of the hub's cache that the files arrive in."""


def download_model(
    name: str,
    progress: Callable[[LoadProgress], None],
    is_cancelled: Callable[[], bool],
    command: list[str] | None = None,
) -> Path:
    """Fetch a model, or the rest of it; returns its folder in the hub's cache, or its GGUF file. `name` is
    `owner/model` or `owner/model:TAG`, see `hub_gguf`. Progress comes several times a second.

    Raises DownloadError, ModelNotFoundError, UnsupportedModelError, and WaitCancelled.
    """
    command = command or [sys.executable, "-P", "-m", "engine.checkpoint.hub_child"]
    child = subprocess.Popen([*command, name, str(os.getpid())], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert child.stdout is not None
    plans: list[DownloadPlan] = []
    try:
        return _follow(child.stdout.fileno(), name, progress, is_cancelled, plans)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
        for plan in plans:
            sweep_unfinished(Path(plan.blobs))


def _follow(
    pipe: int,
    name: str,
    progress: Callable[[LoadProgress], None],
    is_cancelled: Callable[[], bool],
    plans: list[DownloadPlan],
) -> Path:
    """Read what the child says until it has a place or an error, and report what has arrived. The plan is added."""
    base_bytes = 0
    tell = _progress_of(name, progress)
    tell(None, 0)
    for line in lines_of(pipe, _POLL_S):
        if is_cancelled():
            raise WaitCancelled("Stopped.")
        if line is not None:
            answer = json.loads(line)
            if "place" in answer:
                return Path(answer["place"])
            if "reason" in answer:
                raise _error(name, answer["reason"], answer["detail"])
            if "verifying" in answer:
                progress(LoadProgress(f"comparing {answer['verifying']} with its checksum", 0, 0))
                continue
            plans.append(DownloadPlan(**answer))
            base_bytes = _arrived_bytes(plans[0].blobs)
        tell(plans[0] if plans else None, base_bytes)
    raise _error(name, "died", "the downloading process ended without an answer.")


def _progress_of(name: str, progress: Callable[[LoadProgress], None]) -> Callable[[DownloadPlan | None, int], None]:
    """Tells how far the download is: by its plan, once there is one, and the bytes that were there before."""

    def tell(plan: DownloadPlan | None, base_bytes: int) -> None:
        if plan is None:
            progress(LoadProgress(f"asking the hub for {name}", 0, 0))
            return
        done_bytes = min(plan.cached_bytes + _arrived_bytes(plan.blobs) - base_bytes, plan.total_bytes)
        progress(LoadProgress(f"downloading {name}", done_bytes, plan.total_bytes))

    return tell


def sweep_unfinished(blobs: Path) -> None:
    """Remove the unfinished files of downloads that were killed. Those of a running one hold their file's lock."""
    locks = blobs.parent.parent / ".locks" / blobs.parent.name
    for unfinished in blobs.glob("*.incomplete"):
        lock_path = locks / f"{unfinished.name.split('.')[0]}.lock"
        with contextlib.suppress(OSError), lock_path.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unfinished.unlink()


def _arrived_bytes(blobs: str) -> int:
    """Bytes on the disk, those of unfinished files included; files come and go meanwhile."""
    total_bytes = 0
    for path in Path(blobs).glob("*"):
        try:
            used = path.stat()
        except OSError:
            continue
        # A file may be made at its full length first: only what is written counts.
        total_bytes += min(used.st_size, used.st_blocks * 512)
    return total_bytes


def _error(name: str, reason: str, detail: str) -> MoeChatError:
    """The error for a person, from the child's word for it."""
    repo_id = found.repo_id if (found := hub_name(name)) else name
    page = f"https://huggingface.co/{repo_id}"
    again = "What has arrived is kept."
    match reason:
        case "gated":
            hint = f"Accept the licence on {page}, and set HF_TOKEN to a token of your account."
            return DownloadError(f"{repo_id} is gated: its makers want a licence accepted first.", hint)
        case "unknown":
            hint = "Check the spelling. A private model needs HF_TOKEN set to a token of an account that may read it."
            return ModelNotFoundError(f"There is no model {repo_id} on the hub.", hint)
        case "offline":
            hint = "Check the network connection, and HF_HUB_OFFLINE and HF_ENDPOINT if you set them; or name a folder."
            return DownloadError(
                f"The hub could not be reached, and {name} is not, or not wholly, in the local cache.", hint
            )
        case "disk":
            hint = f"Free some space, or move the hub's cache: set HF_HOME to a folder on another disk. {again}"
            return DownloadError(f"{name} does not fit on the disk: {detail}", hint)
        case "choose":
            return ModelNotFoundError(f"{repo_id} {detail}", f"Name one of them: --model {repo_id}:TAG")
        case "damaged":
            return DownloadError(f"{name}: {detail}", "It was removed: try again.")
        case "unsupported":
            hint = "Choose a repository that holds the model as safetensors or as GGUF."
            return UnsupportedModelError(f"{repo_id} cannot be run here: {detail}", hint)
        case _:
            return DownloadError(f"{name} could not be downloaded: {detail}", f"Try again later. {again}")
