"""`python -m devtools.decode_parts FILE`: where a decode step of the ggml back end goes, and how far it is from what
the machine allows.

Rounds of decode alternate with direct reads of random experts by as many threads as the link has, and with steps that
miss nothing: the limit of a round is the larger of that step and of the bytes that were loaded at that bandwidth.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

from app.cli.main import run_guarded
from app.cli.output.terminal_text import print_report
from devtools.part_clock import PartClock
from engine.backends.ggml.backend import GgmlBackend
from engine.backends.offloaded_model import OffloadedModel
from engine.config import GGML, EngineConfig
from offload.page_memory import address_of, advise_huge_pages, page_buffer

_READ_S, _READ_BYTES = 0.4, 32 << 20
"""How long bandwidth is measured, and the memory of each thread for it."""
_WARM_TOK, _FLOOR_STEPS = 10, 7
_GRAPHS, _WAITS = "graphs", "waiting for experts"


@dataclass(frozen=True, slots=True)
class Round:
    """Milliseconds a token, medians, and what they are compared with."""

    step_ms: float
    floor_ms: float
    loaded_bytes: float
    """A token."""
    bytes_per_s: float

    @property
    def limit_ms(self) -> float:
        """The larger of the compute and of the loads at the measured bandwidth."""
        return max(self.floor_ms, self.loaded_bytes / self.bytes_per_s * 1000)


class DecodeParts:
    """Measures one loaded model."""

    def __init__(self, engine: OffloadedModel) -> None:
        assert isinstance(engine.backend, GgmlBackend), "of the ggml back end"
        self._engine, self._backend, self.clock = engine, engine.backend, PartClock()
        self._random, self._token = random.Random(0), 0
        self._memories = [page_buffer(_READ_BYTES) for _ in range(engine.link.num_threads)]
        for memory in self._memories:
            advise_huge_pages(address_of(memory), len(memory))
            memory[:] = bytes(len(memory))

    def start(self, num_prompt_tok: int) -> None:
        """Computes a prompt and the first tokens."""
        prompt = [(7 * place + 3) % self._engine.loaded.vocabulary_tok for place in range(num_prompt_tok)]
        self._token = int(self._engine.decoder.prefill(prompt, lambda done_tok: None).argmax())
        self._decode(_WARM_TOK)

    def count_parts(self, num_tok: int) -> None:
        """Decodes so many tokens by the parts of `clock`, which cost some time themselves."""
        engine, wrap = self._engine, self.clock.wrap
        for owner, method, part in (
            (engine.decoder, "step", "the rest"),
            (self._backend._compute, "run", _GRAPHS),
            (engine.cache, "acquire", "slots and eviction"),
            (engine.cache, "release", "slots and eviction"),
            (engine.prefetching, "look_ahead", "look-ahead and prefetch"),
            *((layer, "_decode", "a layer's experts") for layer in engine.layers),
            *((layer, "computed_resident", "a layer's experts") for layer in engine.layers),
            *((layer, "_wait", _WAITS) for layer in engine.layers),
        ):
            wrap(owner, method, part)
        self._decode(num_tok)
        self.clock.close()

    def round(self, num_tok: int) -> Round:
        """One of decode, reads and steps that miss nothing."""
        cache, before_bytes = self._engine.cache, self._loaded_bytes()
        step_ms = statistics.median(self._decode(num_tok)) * 1000
        loaded = (self._loaded_bytes() - before_bytes) / num_tok
        made = Round(step_ms, self._floor_ms(), loaded, self._bytes_per_s())
        cache.check_integrity()
        return made

    def _decode(self, num_tok: int) -> list[float]:
        """Seconds of each step."""
        times = []
        for _ in range(num_tok):
            began_s = perf_counter()
            self._token = int(self._engine.decoder.step(self._token).argmax())
            times.append(perf_counter() - began_s)
        return times

    def _loaded_bytes(self) -> int:
        return self._engine.cache.total_counters().bytes_loaded

    def _floor_ms(self) -> float:
        state, cache, times = self._engine.state, self._engine.decoder.cache, []
        tokens, state.is_calibrating = list(cache.tokens), True
        for _ in range(_FLOOR_STEPS):
            began_s = perf_counter()
            self._backend.time_step(len(tokens))
            times.append(perf_counter() - began_s)
            cache.tokens[:] = tokens
        state.is_calibrating = False
        return statistics.median(times) * 1000

    def _bytes_per_s(self) -> float:
        layers, store, read = self._engine.loaded.plan.geometry.layers, self._engine.loaded.store, []
        end_s = perf_counter() + _READ_S

        def load(memory: memoryview) -> None:
            while perf_counter() < end_s:
                layer = self._random.randrange(len(layers))
                expert = self._random.randrange(layers[layer].num_experts)
                read.append(store.read_into(layer, expert, memory[: layers[layer].expert_bytes]))

        threads = [threading.Thread(target=load, args=(memory,)) for memory in self._memories]
        began_s = perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(read) / (perf_counter() - began_s)


def measure(
    config: EngineConfig, num_rounds: int, num_tok: int, num_prompt_tok: int
) -> tuple[list[str], dict[str, object]]:
    """(lines for a person, report). Raises what loading raises."""
    engine = OffloadedModel(config, Path(config.model), lambda progress: None, lambda: False)
    try:
        parts = DecodeParts(engine)
        parts.start(num_prompt_tok)
        rounds = [parts.round(num_tok) for _ in range(num_rounds)]
        parts.count_parts(num_tok * num_rounds)
    finally:
        engine.close()
    per_tok_ms = {part: seconds * 1000 / num_tok / num_rounds for part, seconds in parts.clock.seconds.items()}
    whole_ms = sum(per_tok_ms.values())
    outside = 1 - sum(per_tok_ms.get(part, 0.0) for part in (_GRAPHS, _WAITS)) / whole_ms
    ratios = [each.step_ms / each.limit_ms for each in rounds]
    lines = [
        f"{statistics.median(each.step_ms for each in rounds):.1f} ms a token, {num_rounds} rounds of {num_tok}; "
        f"{engine.threads}; {statistics.median(ratios):.2f} times the limit ({min(ratios):.2f} to {max(ratios):.2f})",
        *(
            f"  {each.step_ms:6.1f} ms; compute {each.floor_ms:.1f} ms; {each.loaded_bytes / 1e6:.0f} MB a token at "
            f"{each.bytes_per_s / 1e9:.2f} GB/s: {each.limit_ms:.1f} ms"
            for each in rounds
        ),
        *(f"  {part:<26}{ms:7.2f} ms   {ms / whole_ms:5.1%}" for part, ms in sorted(per_tok_ms.items(), key=_last)),
        f"outside of graphs and waits: {outside:.1%}",
    ]
    report = {"rounds": [asdict(each) for each in rounds], "times_the_limit": ratios, "parts_ms": per_tok_ms}
    return lines, {**report, "outside_share": outside}


def _last(row: tuple[str, float]) -> float:
    return -row[1]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m devtools.decode_parts", description="Where a decode step goes, and its limit."
    )
    parser.add_argument("model", metavar="FILE", help="a GGUF file, or a folder, of a family that ggml runs")
    parser.add_argument("--gib", type=float, help="the memory budget in GiB (default: what is free)")
    parser.add_argument("--threads", type=int, help="compute threads (default: as many as pay)")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=16, help="of a round")
    parser.add_argument("--prompt-tokens", type=int, default=100)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser


def _run() -> int:
    arguments = _parser().parse_args()
    config = EngineConfig(
        model=arguments.model,
        backend=GGML,
        context_tok=1024,
        memory_bytes=None if arguments.gib is None else int(arguments.gib * 2**30),
        compute_threads=arguments.threads,
    )
    lines, report = measure(config, arguments.rounds, arguments.tokens, arguments.prompt_tokens)
    print_report(lines, report, {}, is_json=arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(run_guarded(_run))
