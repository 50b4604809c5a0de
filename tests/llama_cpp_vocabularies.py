"""Real vocabularies as GGUF files: those that the Python source package `llama-cpp-python` carries for llama.cpp's own
tests. Fetched once by pip into the user's cache, never into the tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

_PACKAGE: Final = "llama-cpp-python==0.3.36"
_WANTED: Final = ("/vendor/llama.cpp/models/ggml-vocab-", "/vendor/llama.cpp/models/templates/")


def vocabularies(fetches: bool = True) -> dict[str, Path]:
    """The files by their short names, such as `qwen2`. Raises OSError where they cannot be had, saying why; without
    `fetches` they are then none."""
    return {path.stem.removeprefix("ggml-vocab-"): path for path in _files("ggml-vocab-*.gguf", fetches)}


def templates(fetches: bool = True) -> dict[str, str]:
    """Chat templates by the names of their models. See `vocabularies`."""
    return {path.stem: path.read_text() for path in _files("*.jinja", fetches)}


def _files(pattern: str, fetches: bool) -> list[Path]:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "moe-chat-tests" / "llama-cpp-0.3.36"
    if not cache.is_dir() and fetches:
        cache.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache.parent) as folder:
            _fetch(Path(folder))
            shutil.rmtree(cache, ignore_errors=True)
            os.replace(Path(folder) / "models", cache)
    return sorted(cache.glob(pattern))


def _fetch(folder: Path) -> None:
    options = ("--no-deps", "--no-binary", "llama-cpp-python", "--quiet", "--dest", str(folder))
    command = [sys.executable, "-m", "pip", "download", *options, _PACKAGE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    except subprocess.TimeoutExpired as error:
        raise OSError(None, f"pip took too long to download {_PACKAGE}") from error
    archive = next(folder.glob("*.tar.gz"), None)
    if archive is None:
        raise OSError(None, f"pip cannot download {_PACKAGE}: {done.stderr.strip()[-200:]}")
    (folder / "models").mkdir()
    with tarfile.open(archive) as packed:
        for member in packed:
            if member.isfile() and any(wanted in member.name for wanted in _WANTED):
                content = packed.extractfile(member)
                assert content is not None
                (folder / "models" / Path(member.name).name).write_bytes(content.read())
