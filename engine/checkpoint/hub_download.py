"""Fetching a model from the Hugging Face hub, in a child process that a cancel can end at once.

The child asks for the files' sizes, checks the disk, and downloads; it says so in JSON lines on its standard output.
Files that have arrived whole stay in the hub's cache, and the next try goes on from there; an unfinished one is begun
anew, because the hub's library gives every try a file of its own. (A connection that breaks is taken up again within
the file.) Only configuration, tokenizer and safetensors files are fetched: no code, and nothing to be unpickled.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from engine.child_process import answers_on_stdout, end_with_parent, lines_of
from engine.config import format_bytes
from engine.errors import DownloadError, ModelNotFoundError, MoeChatError, UnsupportedModelError
from engine.events import LoadProgress
from offload.errors import WaitCancelled

WANTED = ["*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken", "*.safetensors"]
UNWANTED = ["*/*", "consolidated*"]
"""Folders and `consolidated` files hold the same weights once more, in their makers' own layout."""

_SMALL_FILES = WANTED[:-1]
_NUM_WORKERS = 2
"""Files fetched at a time: as many are lost when a download is stopped."""
_SPARE_BYTES = 200 * 10**6
"""Left free on the disk, whatever is downloaded."""
_POLL_S = 0.25


@dataclass(frozen=True, slots=True)
class DownloadPlan:
    """What a download comes to. `cached_bytes` of `total_bytes` are in the cache already, as whole files."""

    total_bytes: int
    cached_bytes: int
    blobs: str
    """The folder of the hub's cache that the files arrive in."""


# -- the parent's side ------------------------------------------------------------------------------------------------


def download_model(
    repo_id: str,
    progress: Callable[[LoadProgress], None],
    is_cancelled: Callable[[], bool],
    command: list[str] | None = None,
) -> Path:
    """Fetch a model, or the rest of it; returns its folder in the hub's cache. Progress comes several times a second.

    Raises DownloadError, ModelNotFoundError, UnsupportedModelError, and WaitCancelled.
    """
    command = command or [sys.executable, "-P", "-m", "engine.checkpoint.hub_download"]
    child = subprocess.Popen([*command, repo_id, str(os.getpid())], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert child.stdout is not None
    plans: list[DownloadPlan] = []
    try:
        return _follow(child.stdout.fileno(), repo_id, progress, is_cancelled, plans)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
        for plan in plans:
            sweep_unfinished(Path(plan.blobs))


def _follow(
    pipe: int,
    repo_id: str,
    progress: Callable[[LoadProgress], None],
    is_cancelled: Callable[[], bool],
    plans: list[DownloadPlan],
) -> Path:
    """Read what the child says until it has a folder or an error, and report what has arrived. The plan is added."""
    base_bytes = 0
    tell = _progress_of(repo_id, progress)
    tell(None, 0)
    for line in lines_of(pipe, _POLL_S):
        if is_cancelled():
            raise WaitCancelled("Stopped.")
        if line is not None:
            answer = json.loads(line)
            if "folder" in answer:
                return Path(answer["folder"])
            if "reason" in answer:
                raise _error(repo_id, answer["reason"], answer["detail"])
            plans.append(DownloadPlan(**answer))
            base_bytes = _arrived_bytes(plans[0].blobs)
        tell(plans[0] if plans else None, base_bytes)
    raise _error(repo_id, "died", "the downloading process ended without an answer.")


def _progress_of(repo_id: str, progress: Callable[[LoadProgress], None]) -> Callable[[DownloadPlan | None, int], None]:
    """Tells how far the download is: by its plan, once there is one, and the bytes that were there before."""

    def tell(plan: DownloadPlan | None, base_bytes: int) -> None:
        if plan is None:
            progress(LoadProgress(f"asking the hub for {repo_id}", 0, 0))
            return
        done_bytes = min(plan.cached_bytes + _arrived_bytes(plan.blobs) - base_bytes, plan.total_bytes)
        progress(LoadProgress(f"downloading {repo_id}", done_bytes, plan.total_bytes))

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


def _error(repo_id: str, reason: str, detail: str) -> MoeChatError:
    """The error for a person, from the child's word for it."""
    page = f"https://huggingface.co/{repo_id}"
    again = "Files that arrived whole are kept."
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
                f"The hub could not be reached, and {repo_id} is not, or not wholly, in the local cache.", hint
            )
        case "disk":
            hint = f"Free some space, or move the hub's cache: set HF_HOME to a folder on another disk. {again}"
            return DownloadError(f"{repo_id} does not fit on the disk: {detail}", hint)
        case "unsupported":
            hint = "Choose a repository that holds the model as safetensors."
            return UnsupportedModelError(f"{repo_id} cannot be run here: {detail}", hint)
        case _:
            return DownloadError(f"{repo_id} could not be downloaded: {detail}", f"Try again later. {again}")


# -- the child's side -------------------------------------------------------------------------------------------------


class Refused(Exception):
    """The download cannot begin. `reason` is one of the words that the parent has an error for."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def plan_download(repo_id: str) -> DownloadPlan:
    """Ask the hub for the files and their sizes. Raises Refused, and the hub library's own errors."""
    import huggingface_hub
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import repo_folder_name
    from huggingface_hub.utils._paths import filter_repo_objects

    found = huggingface_hub.HfApi().model_info(repo_id, files_metadata=True)
    all_sizes = {file.rfilename: file.size or 0 for file in found.siblings or ()}
    wanted = filter_repo_objects(all_sizes, allow_patterns=WANTED, ignore_patterns=UNWANTED)
    sizes = {name: all_sizes[name] for name in wanted}
    _check_files(sizes, all_sizes)

    def is_cached(name: str) -> bool:
        return isinstance(huggingface_hub.try_to_load_from_cache(repo_id, name, revision=found.sha), str)

    blobs = Path(HF_HUB_CACHE) / repo_folder_name(repo_id=repo_id, repo_type="model") / "blobs"
    cached_bytes = sum(size for name, size in sizes.items() if is_cached(name))
    total_bytes = sum(sizes.values())
    sweep_unfinished(blobs)
    _check_disk(total_bytes - cached_bytes, blobs)
    return DownloadPlan(total_bytes, cached_bytes, str(blobs))


def _check_files(sizes: Iterable[str], all_names: Iterable[str]) -> None:
    """Refuse a repository that holds nothing to run. Raises Refused."""
    names, all_names = set(sizes), set(all_names)
    if any(name.endswith(".safetensors") for name in names) and "config.json" in names:
        return
    if any(name.endswith(".gguf") for name in all_names):
        raise Refused("unsupported", "it holds GGUF files, which are not downloaded: fetch one, and name the file.")
    if "config.json" not in names:
        raise Refused("unsupported", "it has no config.json, so it is not a transformers checkpoint.")
    raise Refused("unsupported", "it has no safetensors weights, and no other kind is loaded.")


def _check_disk(missing_bytes: int, folder: Path) -> None:
    """Refuse a download that cannot end well. Raises Refused."""
    while not folder.exists():
        folder = folder.parent
    free_bytes = shutil.disk_usage(folder).free
    if missing_bytes + _SPARE_BYTES > free_bytes:
        wanting = f"{format_bytes(missing_bytes)} are to be downloaded into {folder}"
        raise Refused("disk", f"{wanting}, where {format_bytes(free_bytes)} are free.")


def reason_of(error: BaseException) -> tuple[str, str]:
    """The word for an error of the hub library, its causes included, and what it said."""
    from huggingface_hub import errors

    detail = (str(error).strip() or type(error).__name__).splitlines()[0]
    chain: BaseException | None = error
    while chain is not None:
        if isinstance(chain, Refused):
            return chain.reason, detail
        if isinstance(chain, errors.GatedRepoError):
            return "gated", detail
        if isinstance(chain, errors.RepositoryNotFoundError | errors.HFValidationError):
            return "unknown", detail
        if getattr(chain, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(chain):
            return "disk", "it filled up during the download."
        if isinstance(chain, errors.LocalEntryNotFoundError | ConnectionError) or _is_transport_error(chain):
            return "offline", detail
        chain = chain.__cause__ or chain.__context__
    return "other", detail


def _is_transport_error(error: BaseException) -> bool:
    """Whether an HTTP client, whichever the hub library uses, got no answer: no route, no name, a timeout."""
    return any(kind.__name__ == "TransportError" for kind in type(error).__mro__)


def serve(repo_id: str, say: Callable[[dict[str, object]], None]) -> None:
    """Plan and download, saying the plan, then the folder; or the reason why not."""
    import huggingface_hub

    try:
        say(asdict(plan_download(repo_id)))
        # Small files first: a snapshot whose weights are all there is then a whole one.
        for wanted in (_SMALL_FILES, WANTED):
            folder = huggingface_hub.snapshot_download(
                repo_id, allow_patterns=wanted, ignore_patterns=UNWANTED, max_workers=_NUM_WORKERS
            )
    except Exception as error:  # noqa: BLE001 (a child's error becomes a message, whatever it is)
        reason, detail = reason_of(error)
        say({"reason": reason, "detail": detail})
    else:
        say({"folder": folder})


def main() -> None:
    """The child process, `... REPO_ID PARENT_PID`: ends with its parent, and keeps its standard output for what it has
    to say."""
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    end_with_parent(int(sys.argv[2]))
    answers = answers_on_stdout()
    serve(sys.argv[1], lambda answer: print(json.dumps(answer), file=answers))


if __name__ == "__main__":
    main()
