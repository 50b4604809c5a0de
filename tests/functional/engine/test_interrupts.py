"""SIGINT, SIGTERM and SIGHUP end every command in every phase within two seconds, with the right exit code, and leave
no process behind and no report on standard output."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from offload.geometry import Geometry, LayerGeometry
from offload.replay.trace_writer import TraceWriter
from tests.architectures.tiny import save_checkpoint
from tests.functional.engine.interrupted import Ended, Phase, Program
from tests.functional.engine.sparse_checkpoint import save_sparse_checkpoint
from tests.patience import GONE_S

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LONG_QUESTION = " ".join(f"w{3 + number % 120}" for number in range(200))
TINY = ("--model", "TINY", "--threads", "1", "--residency", "50%", "--link", "200kB/s")
"""Over this link a tiny expert takes an eighth of a second: every phase lasts."""
FAST = TINY[:-2]
SLOW_START = ("--backend", "transformers")
"""It imports the model library."""
ROOMY = ("--model", "ROOMY", *FAST[2:])
BIG = ("--model", "BIG", "--memory", "4GiB")
_STARTING, _READING, _PLANNING = "starting the engine", "reading the checkpoint", "planning the memory"
_PLAIN = "is ready; the domain"

PHASES = (
    Phase("plan, importing", ("plan", *TINY, *SLOW_START), _STARTING, 0.5),
    Phase("ask, just started", ("ask", *TINY, "w5"), delay_s=0.3),
    Phase("ask, importing", ("ask", *TINY, *SLOW_START, "w5"), _STARTING, 0.5),
    Phase("ask, loading", ("ask", *TINY, *SLOW_START, "w5"), _READING),
    Phase("ask, prefill", ("ask", "--json", *TINY, LONG_QUESTION), '"event": "prefill"'),
    Phase("ask, decode", ("ask", "--json", *TINY, "w5 w9"), '"event": "text"'),
    Phase("verify", ("verify", *TINY), "comparing"),
    Phase("bench overhead", ("bench", "overhead", *ROOMY), "rounds"),
    Phase("bench policies", ("bench", "policies", "--quick", *FAST), "answering"),
    Phase("bench prediction", ("bench", "prediction", "--quick", *FAST), "predicting"),
    Phase("bench prefill", ("bench", "prefill", "--quick", *FAST), "calibrating"),
    Phase("profile build", ("profile", "build", *TINY), "recording"),
    Phase("trace record", ("trace", "record", *TINY, "--out", "OUT"), "recording"),
    Phase("trace replay", ("trace", "replay", "TRACE", "--residency", "25%"), "lru"),
    Phase("tune, recording", ("tune", *TINY), "recording"),
    Phase("doctor", ("doctor", *FAST), "checking: "),
)
"""On a tiny model."""

TERMINATED_ONLY = (
    Phase("plain chat, idle", ("--plain", *TINY), delay_s=0.3, typed="\n", prompt=_PLAIN),
    Phase("plain chat, decode", ("--plain", *TINY), "w", 0.2, typed="w5 w9\n", prompt=_PLAIN),
)
"""Where one ctrl+c stops the answer, or says how to leave."""

BIG_PHASES = (
    Phase("plan, planning", ("plan", *BIG), _PLANNING),
    Phase("plan, later", ("plan", *BIG), _PLANNING, 1.0),
    Phase("ask, reading headers", ("ask", *BIG, "w5"), _READING, 0.5),
    Phase("ask, weights", ("ask", *BIG, "w5"), "weights", 0.5),
    Phase("ask, warm-up", ("ask", *BIG, "w5"), "warm-up"),
    Phase("ask, prefill", ("ask", "--json", *BIG, LONG_QUESTION), '"event": "prefill"', 0.5),
    Phase("ask, decode", ("ask", "--json", *BIG, "w5 w9"), '"event": "text"'),
    Phase("profile build", ("profile", "build", *BIG), "recording", 0.5),
    Phase("doctor, the link", ("doctor", *BIG), "link"),
)
"""On a checkpoint of 15 GB."""

SAMPLE = {
    ("plan, importing", signal.SIGINT),
    ("ask, just started", signal.SIGTERM),
    ("ask, loading", signal.SIGINT),
    ("ask, prefill", signal.SIGHUP),
    ("ask, decode", signal.SIGINT),
    ("plain chat, idle", signal.SIGTERM),
    ("bench policies", signal.SIGINT),
    ("trace replay", signal.SIGTERM),
}
"""What the default run looks at."""

_PATIENT = pytest.mark.timeout(400)
"""A busy machine may take minutes until a model of 15 GB answers."""
_table: list[Ended] = []


def _cases() -> list[object]:
    all_signals = [(phase, number, "") for phase in PHASES for number in SIGNALS]
    all_signals += [(phase, number, "") for phase in TERMINATED_ONLY for number in SIGNALS[1:]]
    all_signals += [(phase, number, "15 GB: ") for phase in BIG_PHASES for number in SIGNALS]
    return [
        pytest.param(
            phase,
            number,
            id=f"{size}{phase.name}-{number.name}",
            marks=() if not size and (phase.name, number) in SAMPLE else (pytest.mark.long, _PATIENT),
        )
        for phase, number, size in all_signals
    ]


@pytest.fixture(scope="module", autouse=True)
def printed_table(request: pytest.FixtureRequest) -> Iterator[None]:
    """Prints how long each took, the slowest last (to be seen with -s)."""
    yield
    rows = sorted(_table, key=lambda ended: ended.seconds)
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print()
        for ended in rows:
            print(ended.line())


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> dict[str, str]:
    """What the words in capitals of the commands stand for."""
    folder = tmp_path_factory.mktemp("files")

    _save_long_trace(folder / "long.npz")
    roomy = save_checkpoint(folder / "roomy", "qwen3_moe", num_positions=1024)
    return {
        "TINY": str(tiny),
        "ROOMY": str(roomy),
        "TRACE": str(folder / "long.npz"),
        "OUT": str(folder / "out.npz"),
        "BIG": str(save_sparse_checkpoint(folder / "big")),
    }


def _save_long_trace(path: Path) -> None:
    """Of 12 layers, 64 experts and 6,000 tokens: a replay takes many seconds."""
    num_layers, num_experts, top_k, num_tok = 12, 64, 8, 6000
    geometry = Geometry(tuple(LayerGeometry(layer, num_experts, top_k, 1000) for layer in range(num_layers)))
    writer = TraceWriter("0" * 32, "general", geometry, has_scores=False)
    random = np.random.default_rng(0)
    writer.begin_prompt()
    for _ in range(num_tok):
        writer.begin()
        for layer in range(num_layers):
            writer.record(layer, random.permutation(num_experts)[:top_k])
    writer.trace().save(path)


@pytest.mark.parametrize(("phase", "number"), _cases())
def test_a_signal_ends_it(phase: Phase, number: signal.Signals, files: dict[str, str], tmp_path: Path) -> None:
    asked = Phase(
        phase.name,
        tuple(files.get(word, word) for word in phase.arguments),
        phase.marker,
        phase.delay_s,
        phase.typed,
        phase.prompt,
    )
    program = Program(asked, tmp_path)
    try:
        program.come_to(asked)
        ended = program.end_by(asked, number)
    finally:
        program.close()
    _table.append(ended)
    assert ended.exit_code == 128 + number, ended
    assert ended.leftovers == (), ended
    assert ended.seconds < GONE_S, ended
    if phase.arguments[0] not in ("ask", "--plain", "doctor"):
        assert ended.printed == "", ended


@pytest.mark.long
def test_the_plain_chat_is_left_by_two_interrupts(files: dict[str, str], tmp_path: Path) -> None:
    """The first one only says how to leave."""
    words = tuple(files.get(word, word) for word in ("--plain", *TINY))
    idle = Phase("plain chat", words, marker="> ", delay_s=0.3, typed="\n", prompt=_PLAIN)
    program = Program(idle, tmp_path)
    try:
        program.come_to(idle)
        program.interrupt_until("ctrl+c again")
        ended = program.end_by(idle, signal.SIGINT)
    finally:
        program.close()
    assert (ended.exit_code, ended.leftovers) == (130, ())
    assert ended.seconds < GONE_S
