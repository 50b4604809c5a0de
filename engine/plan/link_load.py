"""A busy link for calibration: threads that read experts as the link's threads do, without the link's meter."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence

from offload.errors import ExpertReadError
from offload.link.expert_source import ExpertSource


class LinkLoad:
    """Context: reads one expert after the other while it is entered.

    `num_experts` per layer. `destinations`: one writable buffer a thread, and the layer whose experts fit into it;
    their content is overwritten. `bytes_per_s`: of an emulated link, not exceeded. A read that fails ends its thread in
    silence: the error is raised again when the expert is loaded.
    """

    def __init__(
        self,
        source: ExpertSource,
        num_experts: Sequence[int],
        destinations: Sequence[tuple[int, memoryview]],
        bytes_per_s: float | None = None,
    ) -> None:
        self._source, self._num_experts, self._bytes_per_s = source, num_experts, bytes_per_s
        self._ended = threading.Event()
        self.num_read = 0
        """Experts read so far, by all threads."""
        self._threads = [
            threading.Thread(target=self._read, args=(layer, memory), name=f"link-load-{number}", daemon=True)
            for number, (layer, memory) in enumerate(destinations)
        ]

    def __enter__(self) -> LinkLoad:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _read(self, layer: int, memory: memoryview) -> None:
        for expert in itertools.cycle(range(self._num_experts[layer])):
            if self._ended.is_set():
                return
            began_s = time.perf_counter()
            try:
                self._source.read_into(layer, expert, memory)
            except ExpertReadError:
                return
            self.num_read += 1
            if self._bytes_per_s is not None:
                took_s = time.perf_counter() - began_s
                self._ended.wait(max(len(memory) / self._bytes_per_s - took_s, 0.0))
