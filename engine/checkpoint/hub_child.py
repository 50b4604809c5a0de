"""The child process that downloads a model: `... hub_child NAME PARENT_PID`. See `hub_download`, its parent's side.

Of a transformers checkpoint only configuration, tokenizer and safetensors files are fetched: no code, and nothing to be
unpickled. Of a repository of GGUF files one model's file or parts are.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine.checkpoint.hub_download import DownloadPlan, sweep_unfinished
from engine.checkpoint.hub_file import PART_SUFFIX, DamagedFile, fetch_file
from engine.checkpoint.hub_gguf import HubGguf, HubName, choices_in_words, ggufs_of, hub_name, matching
from engine.child_process import answers_on_stdout, end_with_parent
from engine.config import format_bytes

WANTED = ["*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken", "*.safetensors"]
UNWANTED = ["*/*", "consolidated*"]
"""Folders and `consolidated` files hold the same weights once more, in their makers' own layout."""

SMALL_FILES = WANTED[:-1]
_NUM_WORKERS = 2
"""Files fetched at a time: as many are lost when a download is stopped."""
_SPARE_BYTES = 200 * 10**6
"""Left free on the disk, whatever is downloaded."""


class Refused(Exception):
    """The download cannot begin. `reason` is one of the words that the parent has an error for."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def plan_download(name: HubName) -> tuple[DownloadPlan, HubGguf | None]:
    """Ask the hub for the files and their sizes: what the download comes to, and the GGUF model that is meant (None: a
    transformers checkpoint). Raises Refused, and the hub library's own errors."""
    import huggingface_hub
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import repo_folder_name
    from huggingface_hub.utils._paths import filter_repo_objects

    found = huggingface_hub.HfApi().model_info(name.repo_id, files_metadata=True)
    files = {file.rfilename: file for file in found.siblings or ()}
    sizes = {file: stored.size or 0 for file, stored in files.items()}
    model = choose_gguf(name, sizes)
    if model is None:
        wanted = list(filter_repo_objects(sizes, allow_patterns=WANTED, ignore_patterns=UNWANTED))
        _check_files(wanted)
    else:
        wanted = list(model.names)
    blobs = Path(HF_HUB_CACHE) / repo_folder_name(repo_id=name.repo_id, repo_type="model") / "blobs"

    def cached_bytes(file: str) -> int:
        if isinstance(huggingface_hub.try_to_load_from_cache(name.repo_id, file, revision=found.sha), str):
            return sizes[file]
        return _arrived_bytes(blobs, files[file], sizes[file]) if model is not None else 0

    there_bytes = sum(map(cached_bytes, wanted))
    total_bytes = sum(sizes[file] for file in wanted)
    sweep_unfinished(blobs)
    _check_disk(total_bytes - there_bytes, blobs)
    return DownloadPlan(total_bytes, there_bytes, str(blobs)), model


def _arrived_bytes(blobs: Path, stored: Any, num_bytes: int) -> int:
    """Of a file of the repository, whole or in part."""
    etag = stored.lfs.sha256 if stored.lfs is not None else stored.blob_id
    for path in (blobs / str(etag), blobs / f"{etag}{PART_SUFFIX}"):
        if path.is_file():
            return min(path.stat().st_size, num_bytes)
    return 0


def choose_gguf(name: HubName, sizes: Mapping[str, int]) -> HubGguf | None:
    """The GGUF model that is meant; None: the repository's transformers checkpoint. Raises Refused where several are
    meant, or none."""
    found = ggufs_of(sizes)
    has_checkpoint = "config.json" in sizes and any(file.endswith(".safetensors") for file in sizes)
    if not name.tag and (has_checkpoint or not found):
        return None
    if not found:
        raise Refused("unsupported", f"it holds no GGUF file, so {name.tag!r} names nothing in it.")
    meant = matching(found, name.tag)
    if len(meant) != 1:
        what = f"holds {len(meant)} GGUF models" if meant else "holds no GGUF model"
        what += f" called {name.tag!r}" if name.tag else ""
        raise Refused("choose", f"{what}: {choices_in_words(name.repo_id, meant or found, sizes)}.")
    if meant[0].num_missing:
        raise Refused("unsupported", f"{meant[0].num_missing} of the parts of {meant[0].stem} are missing on the hub.")
    return meant[0]


def _check_files(names: Iterable[str]) -> None:
    """Refuse a repository that holds nothing to run. Raises Refused."""
    wanted = set(names)
    if "config.json" not in wanted:
        raise Refused("unsupported", "it has no config.json, so it is not a transformers checkpoint.")
    if not any(name.endswith(".safetensors") for name in wanted):
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
        if isinstance(chain, DamagedFile):
            return "damaged", detail
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


def serve(text: str, say: Callable[[dict[str, object]], None]) -> None:
    """Plan and download, saying the plan, then the place; or the reason why not."""
    name = hub_name(text) or HubName(text)
    try:
        plan, model = plan_download(name)
        say(asdict(plan))
        place = _checkpoint(name.repo_id) if model is None else _gguf(name.repo_id, model, say)
    except Exception as error:  # noqa: BLE001 (a child's error becomes a message, whatever it is)
        reason, detail = reason_of(error)
        say({"reason": reason, "detail": detail})
    else:
        say({"place": place})


def _checkpoint(repo_id: str) -> str:
    """Small files first: a snapshot whose weights are all there is then a whole one."""
    import huggingface_hub

    folder = ""
    for wanted in (SMALL_FILES, WANTED):
        folder = huggingface_hub.snapshot_download(
            repo_id, allow_patterns=wanted, ignore_patterns=UNWANTED, max_workers=_NUM_WORKERS
        )
    return folder


def _gguf(repo_id: str, model: HubGguf, say: Callable[[dict[str, object]], None]) -> str:
    """One part after the other, so that little is unfinished when it is stopped; returns the first."""
    places = [fetch_file(repo_id, name, lambda name: say({"verifying": name})) for name in model.names]
    return str(places[0])


def run_as_child(serve_name: Callable[[str, Callable[[dict[str, object]], None]], None]) -> None:
    """Serves the name on the command line, `... NAME PARENT_PID`. Ends with its parent, and keeps its standard output
    for what it has to say."""
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    end_with_parent(int(sys.argv[2]))
    answers = answers_on_stdout()
    serve_name(sys.argv[1], lambda answer: print(json.dumps(answer), file=answers))


if __name__ == "__main__":
    run_as_child(serve)
