"""Tiny checkpoints, each saved once for the whole run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.architectures.tiny import save_checkpoint

TinyFolder = Callable[..., Path]


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> TinyFolder:
    """`tiny_folder(name, dtype=...)`: the folder of a tiny checkpoint; not to be changed."""
    saved: dict[tuple[str, torch.dtype], Path] = {}

    def folder(name: str, dtype: torch.dtype = torch.float32) -> Path:
        if (name, dtype) not in saved:
            saved[name, dtype] = save_checkpoint(tmp_path_factory.mktemp(name), name, dtype)
        return saved[name, dtype]

    return folder
