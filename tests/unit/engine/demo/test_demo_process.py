"""The demo's build in a process of its own: what it tells, and what becomes of it when it fails or is stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.demo import process as demo_process
from engine.demo.process import ensure_demo_apart
from engine.errors import DemoBuildError
from engine.events import LoadProgress
from offload.errors import WaitCancelled


def never() -> bool:
    return False


def test_a_built_demo_needs_no_process(demo_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_process.subprocess, "Popen", None)
    assert ensure_demo_apart(lambda event: None, never) == demo_folder


def test_the_childs_error_comes_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MOE_CHAT_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DemoBuildError, match="could not be built") as failure:
        ensure_demo_apart(lambda event: None, never)
    assert "MOE_CHAT_CACHE" in failure.value.hint


def test_stopped_it_is_gone_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOE_CHAT_CACHE", str(tmp_path))
    with pytest.raises(WaitCancelled):
        ensure_demo_apart(lambda event: None, lambda: True)


def test_progress_is_handed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "child"
    script.write_text(
        "#!/bin/sh\n"
        'echo \'{"stage": "downloading", "done": 3, "total": 9, "unit": "B"}\'\n'
        f'echo \'{{"folder": "{tmp_path}"}}\'\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("MOE_CHAT_CACHE", str(tmp_path / "empty"))
    monkeypatch.setattr(demo_process.sys, "executable", str(script))
    heard: list[LoadProgress] = []
    assert ensure_demo_apart(heard.append, never) == tmp_path
    assert heard == [LoadProgress("downloading", 3, 9, "B")]
