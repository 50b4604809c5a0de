"""From the name of a model to a checkpoint folder on this machine: the demo, a folder, or a model of the hub."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path

from engine.checkpoint.config_summary import has_config
from engine.checkpoint.hub_download import download_model
from engine.checkpoint.shards import choose_shards, pickled_file
from engine.checkpoint.tokenizer_files import has_vocabulary
from engine.config import DEMO_MODEL
from engine.demo.model import never
from engine.demo.process import ensure_demo_apart
from engine.demo.wheel import IsCancelled, Progress
from engine.errors import CheckpointError, ModelNotFoundError, UnsupportedModelError
from offload.regular_file import why

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def resolve_model(name: str, progress: Progress, is_cancelled: IsCancelled = never) -> Path:
    """The checkpoint folder that `name` stands for, built or downloaded first when it is missing.

    `name` is `demo`, a folder, or a Hugging Face id. Raises ModelNotFoundError, CheckpointError,
    UnsupportedModelError, DownloadError, DemoBuildError, and WaitCancelled when `is_cancelled` says so.
    """
    if name == DEMO_MODEL:
        return ensure_demo_apart(progress, is_cancelled)
    return local_folder(name) or download_model(name, progress, is_cancelled)


def local_folder(name: str) -> Path | None:
    """The folder of a model that is on this machine; None: a hub id that would have to be downloaded, or the rest of
    it. Raises as `resolve_model` does where `name` is neither."""
    path = Path(os.path.expanduser(name))
    if os.path.exists(path):
        check_folder(path)
        return path.resolve()
    if not _HUB_ID.fullmatch(name) or path.suffix in (".gguf", ".safetensors"):
        raise _no_such_model(name)
    return cached_snapshot(name)


def check_folder(path: Path) -> None:
    """Refuse what is no checkpoint folder with safetensors weights, and say what it is instead.

    Whether every shard is there and whole is for the checkpoint's index to find out.
    """
    if path.suffix == ".gguf":
        raise _gguf(path)
    if not path.is_dir():
        raise UnsupportedModelError(
            f"{path} is a file; a model is a folder.",
            "Name the folder that holds config.json and the safetensors files.",
        )
    try:
        os.listdir(path)
    except OSError as error:
        raise ModelNotFoundError(
            f"{path} cannot be read: {why(error)}.", "Give this user the right to read the folder, or name another one."
        ) from error
    has_weights = any(path.glob("*.safetensors"))
    gguf_file = next(iter(sorted(path.glob("*.gguf"))), None)
    if gguf_file is not None and not (has_weights and has_config(path)):
        raise _gguf(gguf_file)
    if not has_config(path):
        raise ModelNotFoundError(
            f"{path} is not a model folder: it has no config.json.",
            "Name the folder that holds config.json, the tokenizer and the safetensors files.",
        )
    if not has_weights:
        raise _no_weights(path)


def cached_snapshot(repo_id: str) -> Path | None:
    """A hub model's folder in the local cache, if all of it is there. Makes no request."""
    import huggingface_hub

    config = huggingface_hub.try_to_load_from_cache(repo_id, "config.json")
    if not isinstance(config, str):
        return None
    folder = Path(config).parent
    return folder if _has_all_weights(folder) and has_vocabulary(folder) else None


def _has_all_weights(folder: Path) -> bool:
    try:
        return not choose_shards(folder).missing
    except (CheckpointError, UnsupportedModelError):
        return False


def _no_such_model(name: str) -> ModelNotFoundError:
    if difflib.get_close_matches(name.lower(), [DEMO_MODEL], cutoff=0.6):
        return ModelNotFoundError(f"There is no model {name!r}.", f"Did you mean {DEMO_MODEL}?")
    return ModelNotFoundError(
        f"There is no folder {name!r}.",
        f"Name a checkpoint folder, a Hugging Face id such as owner/model, or {DEMO_MODEL}.",
    )


def _gguf(path: Path) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{path} is a GGUF file, which moe-chat does not read.",
        "Use the model's original safetensors checkpoint: the repository that the GGUF file was made from, usually "
        "named on its page as the base model.",
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
