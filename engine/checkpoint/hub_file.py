"""Fetches one large file of the hub into its cache so that a stopped download goes on where it was. In the child
process of `hub_child`.

The hub's library keeps nothing of a file that has not arrived whole. Here the bytes go to `blobs/<etag>.part`; the next
try asks for those behind them. A whole file is compared with its size and, where the hub gives it, its SHA-256, and
only then takes the place where the hub's library looks for it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from offload.regular_file import open_regular

PART_SUFFIX: Final = ".part"
"""Of a file that has not arrived whole; it stays when a download is stopped."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PIECE_BYTES: Final = 8 << 20


class DamagedFile(Exception):
    """A file arrived with other bytes than the hub says it has. It was removed."""


def fetch_file(repo_id: str, name: str, verifying: Callable[[str], None]) -> Path:
    """The file's place in the hub's cache, fetched as far as it is not there. `verifying(name)` is called before its
    bytes are compared. Raises DamagedFile, and what the hub's library raises."""
    import huggingface_hub
    from huggingface_hub.constants import HF_HUB_CACHE, MAX_HTTP_DOWNLOAD_SIZE
    from huggingface_hub.file_download import repo_folder_name
    from huggingface_hub.utils._fixes import WeakFileLock

    stored = huggingface_hub.get_hf_file_metadata(huggingface_hub.hf_hub_url(repo_id, name))
    folder = repo_folder_name(repo_id=repo_id, repo_type="model")
    if stored.etag and stored.size and stored.size <= MAX_HTTP_DOWNLOAD_SIZE and "/" not in stored.etag:
        blob = Path(HF_HUB_CACHE) / folder / "blobs" / stored.etag
        lock = Path(HF_HUB_CACHE) / ".locks" / folder / f"{stored.etag}.lock"
        for parent in (blob.parent, lock.parent):
            parent.mkdir(parents=True, exist_ok=True)
        with WeakFileLock(lock):
            if not blob.exists():
                _fetch(repo_id, name, stored.size, blob.with_name(blob.name + PART_SUFFIX))
                verifying(name)
                _put_in_place(blob, name, stored.size)
    # The library links what is there, and fetches what is larger than plain HTTP gives.
    return Path(huggingface_hub.hf_hub_download(repo_id, name))


def _fetch(repo_id: str, name: str, num_bytes: int, part: Path) -> None:
    import huggingface_hub
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils._headers import build_hf_headers

    with part.open("ab") as file:
        if file.tell() > num_bytes:
            file.truncate(0)
        http_get(
            huggingface_hub.hf_hub_url(repo_id, name),
            file,
            resume_size=file.tell(),
            headers=build_hf_headers(),
            expected_size=num_bytes,
        )


def _put_in_place(blob: Path, name: str, num_bytes: int) -> None:
    part = blob.with_name(blob.name + PART_SUFFIX)
    problem = ""
    if (size := part.stat().st_size) != num_bytes:
        problem = f"it has {size} bytes, where the hub says {num_bytes}"
    elif _SHA256.fullmatch(blob.name) and _sha256(part) != blob.name:
        problem = "its SHA-256 is not the one that the hub says"
    if problem:
        part.unlink()
        raise DamagedFile(f"{name} arrived damaged: {problem}.")
    part.replace(blob)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    fd = open_regular(path)
    try:
        while piece := os.read(fd, _PIECE_BYTES):
            digest.update(piece)
    finally:
        os.close(fd)
    return digest.hexdigest()
