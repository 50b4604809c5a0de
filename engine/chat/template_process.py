"""The process that renders chat templates: `python -P -m engine.chat.template_process PARENT MEMORY OUTPUT SECONDS`.

Requests come on stdin and answers go to stdout, each as eight bytes of length and JSON. The system ends the process
when a rendering uses more processor time than it may; more memory than MEMORY bytes beyond what the idle process has
fails with a MemoryError; an output of more than OUTPUT bytes is not finished. Light: jinja2 and the standard library.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, BinaryIO

from engine.chat.template_environment import compile_template
from engine.child_process import end_with_parent

TEXT, REFUSED, TOO_MUCH_MEMORY, TOO_LONG, READY = "text", "refused", "memory", "length", "ready"
"""What an answer holds: the rendered text, the template's own error, which limit was hit, nothing yet."""
LENGTH_BYTES = 8
_MOST_ERROR_CHARS = 2000

_compiled = lru_cache(maxsize=4)(compile_template)


def main() -> None:
    """Answers requests until stdin ends, or its parent does."""
    parent, memory_bytes, output_bytes, seconds = (int(argument) for argument in sys.argv[1:5])
    end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    _compiled("{{ messages }}").render(messages=[])
    _limit_memory(memory_bytes)
    _write(answers, {READY: True})
    while (request := _read(requests)) is not None:
        _limit_processor_time(seconds + 1)
        _write(answers, answer(request, output_bytes))


def answer(request: Mapping[str, Any], output_bytes: int) -> dict[str, object]:
    """`request` has a template and its variables; see the names above for what comes back."""
    try:
        pieces, size = [], 0
        for piece in _compiled(request["template"]).generate(request["variables"]):
            size += len(piece.encode("utf-8", "surrogatepass"))
            if size > output_bytes:
                return {TOO_LONG: True}
            pieces.append(piece)
        return {TEXT: "".join(pieces)}
    except MemoryError:
        return {TOO_MUCH_MEMORY: True}
    except Exception as error:  # noqa: BLE001 - templates are programs of the model's authors and raise what they like
        return {REFUSED: (str(error) or type(error).__name__)[:_MOST_ERROR_CHARS]}


def _read(stream: BinaryIO) -> Any:
    """The next request; None: there will be no more."""
    head = stream.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        return None
    return json.loads(stream.read(int.from_bytes(head, "big")))


def _write(stream: BinaryIO, message: Mapping[str, object]) -> None:
    body = json.dumps(message).encode()
    stream.write(len(body).to_bytes(LENGTH_BYTES, "big") + body)
    stream.flush()


def _limit_memory(num_bytes: int) -> None:
    """Beyond what the process has now; where the system does not say that, beyond nothing but the rendering's."""
    try:
        with open("/proc/self/statm") as file:
            used_bytes = int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used_bytes + num_bytes, most))


def _limit_processor_time(seconds: int) -> None:
    """From now on: the parent's clock ends a rendering earlier, unless the parent is gone."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + seconds + 1, most))


if __name__ == "__main__":
    main()
