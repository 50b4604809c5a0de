"""From the name of a model to its place on this machine: the demo, a folder, a GGUF file, or a model of the hub."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from engine.checkpoint.config_summary import has_config
from engine.checkpoint.gguf.location import find_gguf, is_gguf
from engine.checkpoint.gguf.split_files import SUFFIX
from engine.checkpoint.hub_cache import cached_gguf, cached_snapshot
from engine.checkpoint.hub_download import download_model
from engine.checkpoint.hub_gguf import hub_name
from engine.checkpoint.shards import pickled_file
from engine.config import DEMO_MODEL
from engine.demo.model import never
from engine.demo.process import ensure_demo_apart
from engine.demo.wheel import IsCancelled, Progress
from engine.errors import CheckpointError, ModelNotFoundError, UnsupportedModelError
from offload.regular_file import why


def resolve_model(name: str, progress: Progress, is_cancelled: IsCancelled = never) -> Path:
    """Where the model lies that `name` stands for: a checkpoint folder, or a GGUF file (of a split one the first part).

    `name` is `demo`, a folder, a GGUF file, a Hugging Face id, or one with the quantisation of a GGUF file in it
    (`owner/model:Q4_K_M`); what is missing is built or downloaded first. Raises ModelNotFoundError, CheckpointError,
    UnsupportedModelError, DownloadError, DemoBuildError, and WaitCancelled when `is_cancelled` says so.
    """
    if name == DEMO_MODEL:
        return ensure_demo_apart(progress, is_cancelled)
    return local_model(name) or download_model(name, progress, is_cancelled)


def local_model(name: str) -> Path | None:
    """Where a model lies that is on this machine; None: a hub id that would have to be downloaded, or the rest of it.
    Raises as `resolve_model` does where `name` is neither."""
    path = Path(os.path.expanduser(name))
    if os.path.exists(path):
        return _place_of(path)
    on_hub = hub_name(name)
    if on_hub is None or (not on_hub.tag and path.suffix in (SUFFIX, ".safetensors")):
        raise _no_such_model(name)
    return (None if on_hub.tag else cached_snapshot(on_hub.repo_id)) or cached_gguf(on_hub)


def _place_of(path: Path) -> Path:
    """The folder with safetensors weights, or the GGUF file, that `path` is or holds; anything else is refused, by what
    it is instead.

    Whether every shard is there and whole is for the checkpoint's index or the file's header to find out.
    """
    if not path.is_dir():
        if is_gguf(path) and (file := find_gguf(path)):
            return file
        raise UnsupportedModelError(
            f"{path} is a file, and no GGUF file; other models are folders.",
            "Name the folder that holds config.json and the safetensors files, or a GGUF file.",
        )
    try:
        os.listdir(path)
    except OSError as error:
        raise ModelNotFoundError(
            f"{path} cannot be read: {why(error)}.", "Give this user the right to read the folder, or name another one."
        ) from error
    has_weights = any(path.glob("*.safetensors"))
    if not (has_weights and has_config(path)) and (file := find_gguf(path)):
        return file
    if not has_config(path):
        raise ModelNotFoundError(
            f"{path} is not a model folder: it has no config.json.",
            "Name the folder that holds config.json, the tokenizer and the safetensors files, or a GGUF file.",
        )
    if not has_weights:
        raise _no_weights(path)
    return path.resolve()


def _no_such_model(name: str) -> ModelNotFoundError:
    if difflib.get_close_matches(name.lower(), [DEMO_MODEL], cutoff=0.6):
        return ModelNotFoundError(f"There is no model {name!r}.", f"Did you mean {DEMO_MODEL}?")
    return ModelNotFoundError(
        f"There is no file or folder {name!r}.",
        "Name a checkpoint folder, a GGUF file, a Hugging Face id such as owner/model or owner/model:Q4_K_M, or "
        f"{DEMO_MODEL}.",
    )


def _no_weights(path: Path) -> CheckpointError | UnsupportedModelError:
    pickled = pickled_file(path)
    if not pickled:
        return CheckpointError(
            f"{path} holds no weights: there is no safetensors file in it.",
            "Fetch the model again, weights included.",
        )
    return UnsupportedModelError(
        f"{path} holds its weights as {pickled}, a pickle, which can run code when it is opened and is never loaded.",
        "Use a safetensors version of the model: most repositories have one, on another branch if not on the main one.",
    )
