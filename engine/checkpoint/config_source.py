"""From what `--config` names to the folder it stands for: a folder, or a model of the hub, of which only configuration
and tokenizer are fetched."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from engine.checkpoint.config_file import CONFIG_FILE
from engine.checkpoint.config_summary import has_config
from engine.checkpoint.hub_gguf import hub_name
from engine.checkpoint.tokenizer_files import has_vocabulary
from engine.errors import ModelNotFoundError

_UNWANTED = ["*/*", "*.index.json"]


def resolve_config(name: str, is_cancelled: Callable[[], bool]) -> Path:
    """The folder, which holds a config.json. Raises ModelNotFoundError, DownloadError and WaitCancelled."""
    return local_config(name) or _download(name, is_cancelled)


def local_config(name: str) -> Path | None:
    """As `resolve_config`; None: a model of the hub that would have to be fetched. Raises ModelNotFoundError."""
    path = Path(os.path.expanduser(name))
    on_hub = hub_name(name)
    if not path.exists() and on_hub is not None and not on_hub.tag:
        return _cached(name)
    if not path.is_dir() or not has_config(path):
        what = "holds no config.json" if path.is_dir() else "is no folder"
        raise ModelNotFoundError(
            f"{name} {what}: it cannot be used as --config.",
            "Name the folder that holds the model's config.json and tokenizer, or its Hugging Face id.",
        )
    return path.resolve()


def _cached(repo_id: str) -> Path | None:
    """In the hub's cache, with a tokenizer. Makes no request."""
    import huggingface_hub

    found = huggingface_hub.try_to_load_from_cache(repo_id, CONFIG_FILE)
    if not isinstance(found, str):
        return None
    folder = Path(found).parent
    return folder if has_vocabulary(folder) else None


def _download(repo_id: str, is_cancelled: Callable[[], bool]) -> Path:
    from engine.checkpoint.hub_download import download_model

    command = [sys.executable, "-P", "-m", "engine.checkpoint.config_source"]
    return download_model(repo_id, lambda progress: None, is_cancelled, command)


def serve(repo_id: str, say: Callable[[dict[str, object]], None]) -> None:
    """The child's work: fetches the small files, and says their folder, or the reason why not."""
    import huggingface_hub

    from engine.checkpoint.hub_child import SMALL_FILES, reason_of

    try:
        folder = huggingface_hub.snapshot_download(repo_id, allow_patterns=SMALL_FILES, ignore_patterns=_UNWANTED)
        if not has_config(Path(folder)):
            say({"reason": "unsupported", "detail": "it has no config.json."})
            return
    except Exception as error:  # noqa: BLE001 (a child's error becomes a message, whatever it is)
        reason, detail = reason_of(error)
        say({"reason": reason, "detail": detail})
    else:
        say({"place": folder})


if __name__ == "__main__":
    from engine.checkpoint.hub_child import run_as_child

    run_as_child(serve)
