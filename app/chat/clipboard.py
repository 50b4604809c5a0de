"""Copying: the system's clipboard through its own program where there is one, and the terminal's by OSC 52."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping

_WAIT_S = 2.0


def programs(environment: Mapping[str, str], platform: str) -> list[tuple[str, ...]]:
    """Command lines that take text on their input for the clipboard of this session, the best first."""
    found: list[tuple[str, ...]] = []
    if platform == "darwin":
        found.append(("pbcopy",))
    if environment.get("WAYLAND_DISPLAY"):
        found.append(("wl-copy",))
    if environment.get("DISPLAY"):
        found += [("xclip", "-selection", "clipboard"), ("xsel", "--clipboard", "--input")]
    if environment.get("WSL_DISTRO_NAME"):
        found.append(("clip.exe",))
    return found


async def copy_by_program(text: str) -> str:
    """Give `text` to the system's clipboard; returns the program that took it, or an empty text."""
    for command in programs(os.environ, sys.platform):
        if shutil.which(command[0]) and await _feed(command, text):
            return command[0]
    return ""


async def _feed(command: tuple[str, ...], text: str) -> bool:
    """Whether the program took the text. It may stay in the background to serve it: its output is not waited for."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return False
    try:
        await asyncio.wait_for(process.communicate(text.encode("utf-8", "replace")), _WAIT_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        return False
    except OSError:
        return False
    return process.returncode == 0
