"""The process that damaged GGUF files are read in; a fork for each, so that one that hangs takes nothing along.

Arguments: a folder with sound models, and the numbers of the first case and of the one behind the last. Writes a JSON
line for each case: what was done, how it ended, seconds of processor time, bytes of growth.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from engine.backends.tokenizers.gguf_tokenizer import read_tokenizer
from engine.checkpoint.catalogue import describe_folder
from engine.checkpoint.fingerprint import fingerprint
from engine.checkpoint.gguf.header import read_gguf
from engine.checkpoint.gguf.location import find_gguf
from engine.checkpoint.gguf.metadata import Metadata
from engine.checkpoint.gguf.summary import require_runnable
from engine.errors import MoeChatError
from tests.hostile.gguf_mutations import damage

_WALL_LIMIT_S = 30
_MEMORY_CAP_BYTES = 1 << 30
"""Of address space above what is there before."""
MODELS = ("qwen3moe.gguf", "glm4moe-00001-of-00002.gguf")


def read_model(path: Path) -> None:
    """Everything that is read of a GGUF model before its weights. Raises MoeChatError."""
    file = read_gguf(path)
    require_runnable(file)
    read_tokenizer(Metadata(file))
    fingerprint(path)


def _outcome(path: Path) -> dict[str, Any]:
    try:
        menu = describe_folder(path).reason
        try:
            read_model(find_gguf(path) or path)
        except MoeChatError as error:
            return {"kind": "refused", "message": error.message, "hint": error.hint, "menu": menu}
        return {"kind": "accepted", "menu": menu}
    except BaseException as error:  # noqa: BLE001 - whatever else is raised is what the campaign looks for
        return {"kind": "wrong", "message": f"{type(error).__name__}: {error}"[:500]}


def _forked(path: Path) -> dict[str, Any]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.alarm(_WALL_LIMIT_S)
        cap = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + _MEMORY_CAP_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (cap, cap))
        try:
            os.write(writer, json.dumps(_outcome(path)).encode("utf-8", "replace")[:60_000])
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answers:
        content = answers.read()
    _, status, used = os.wait4(child, 0)
    found = json.loads(content) if content else {"kind": "wrong", "message": f"it ended with status {status}"}
    own_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {**found, "cpu_s": used.ru_utime + used.ru_stime, "growth_bytes": used.ru_maxrss * 1024 - own_bytes}


def main() -> None:
    root, first, end = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    sound, scratch = root / "sound", root / "case"
    for name in MODELS:  # imports what later ones need; a fork then starts with it
        read_model(sound / name)
    for number in range(first, end):
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.copytree(sound, scratch)
        path = scratch / MODELS[number // 3 % len(MODELS)]
        how = damage(path, number)
        print(json.dumps({"number": number, "how": how, "file": path.name, **_forked(path)}), flush=True)


if __name__ == "__main__":
    main()
