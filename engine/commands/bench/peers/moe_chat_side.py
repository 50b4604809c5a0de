"""This engine's run, through the same client as the app's. A program of its own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from engine.api import Load, Submit
from engine.client import EngineClient
from engine.commands.bench.peers.request import SideRequest, Tell, begin_side, peak_rss_bytes
from engine.config import SamplingConfig
from engine.events import EngineReady, Event, Failed, TextDelta, TurnEnded


def main() -> None:
    """Tells load, first token, each step, the text and the peak; or an error."""
    request, tell = begin_side()
    with tempfile.TemporaryDirectory() as folder:
        client = EngineClient(Path(folder) / "engine.log")
        try:
            _run(client, request, tell)
        finally:
            client.close()


def _run(client: EngineClient, request: SideRequest, tell: Tell) -> None:
    start_s = perf_counter()
    client.start()
    client.send(Load(request.config))
    for event in _events(client):
        if isinstance(event, Failed):
            tell({"error": event.message})
            return
        if isinstance(event, EngineReady):
            load_ms = (perf_counter() - start_s) * 1e3
            tell({"stage": "reading the prompt", "load_ms": load_ms, "effective": dict(event.effective)})
            break
    greedy = SamplingConfig(temperature=0.0, repetition_penalty=1.0, max_new_tok=request.new_tok)
    client.send(Submit(1, request.prompt.messages, greedy))
    _follow_answer(client, tell)


def _follow_answer(client: EngineClient, tell: Tell) -> None:
    """Times come from when text arrives: what the user waits for."""
    last_s, num_tok = perf_counter(), 0
    for event in _events(client):
        if isinstance(event, Failed):
            tell({"error": event.message})
            return
        if isinstance(event, TextDelta) and event.num_tok > num_tok:
            took_ms = (perf_counter() - last_s) * 1e3
            new_tok = event.num_tok - num_tok
            tell({"step_ms": took_ms / new_tok} if num_tok else {"stage": "writing", "ttft_ms": took_ms})
            last_s, num_tok = perf_counter(), event.num_tok
        if isinstance(event, TurnEnded):
            stats = event.stats
            tell(
                {
                    "stage": "done",
                    "text": event.thinking + event.text,
                    "prompt_tok": stats.prompt_tok,
                    "end": event.reason,
                    "times_the_limit": stats.times_the_limit,
                    "hit_rate": stats.counters.hit_rate,
                    "link_wait_ms": stats.link_wait_ms,
                    "prefill_bytes": stats.prefill_bytes,
                    "decode_bytes": stats.decode_bytes,
                    "peak_rss_bytes": peak_rss_bytes(os.getpid()) + peak_rss_bytes(client.pid or 0),
                }
            )
            return


def _events(client: EngineClient) -> Iterator[Event]:
    while True:
        event = client.wait_event(1.0)
        if event is not None:
            yield event


if __name__ == "__main__":
    main()
