"""Records routing traces to files, and reads the traces of the loaded model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from engine.api import RecordTrace
from engine.backends.offloaded_model import OffloadedModel
from engine.checkpoint.fingerprint import is_bound_to
from engine.commands.routing_recording import record_routing
from engine.commands.task_outcome import OnTaskProgress, TaskOutcome
from engine.config import format_bytes
from engine.errors import ConfigError
from engine.profiles.prompt_sets import read_prompts, shipped_prompts
from offload.errors import TraceError
from offload.replay.trace import RoutingTrace, load_trace


def record_trace(engine: OffloadedModel, command: RecordTrace, on_progress: OnTaskProgress) -> TaskOutcome:
    """Answers the prompts and writes their routing to a file. Needs memory outside the byte budget for the recording.
    Raises ConfigError for prompts that cannot be read or a file that must not be overwritten, TraceError,
    WaitCancelled."""
    path = Path(command.path)
    _require_replaceable(path)
    if command.prompts_path is None:
        prompts = shipped_prompts(command.domain)[: command.num_prompts]
    else:
        prompts = read_prompts(Path(command.prompts_path), command.num_prompts)
    trace = record_routing(engine, engine.fingerprint, command.domain, prompts, command.num_new_tok, on_progress)
    try:
        trace.save(path)
    except OSError as error:
        raise TraceError(f"{path} cannot be written: {error.strerror}.", "Name another file: --out FILE.") from error
    num_decode_tok = int((~trace.is_prefill).sum())
    report: dict[str, object] = {
        "path": str(path),
        "domain": trace.domain,
        "num_prompts": trace.num_prompts,
        "num_tok": trace.num_steps,
        "num_decode_tok": num_decode_tok,
        "has_predictions": bool((trace.predicted != 0xFFFF).any()),
        "num_bytes": path.stat().st_size,
    }
    counts = f"{trace.num_prompts} prompts, {trace.num_steps} tokens ({num_decode_tok} written)"
    size = format_bytes(path.stat().st_size)
    return TaskOutcome(True, report, (f"{trace.domain}: {counts}", f"recorded in {path} ({size})"))


def _require_replaceable(path: Path) -> None:
    """Checks the target before a recording, which may take an hour. Raises ConfigError if the folder is missing, or the
    file exists and is not a trace."""
    if path.is_dir():
        raise ConfigError(f"{path} is a folder.", "Name a file: --out FILE.")
    if path.exists():
        try:
            load_trace(path)
        except TraceError as error:
            raise ConfigError(
                f"{path} exists and is no routing trace: it is left alone.", "Name another file: --out FILE."
            ) from error
    if not path.parent.is_dir():
        raise ConfigError(f"There is no folder {path.parent}.", "Make it, or name another file: --out FILE.")


def traces_of_model(engine: OffloadedModel, paths: Sequence[str]) -> list[RoutingTrace]:
    """Reads traces of the loaded model's routers, whatever file of the model and back end they were recorded with; they
    count the loaded file's bytes then. Raises TraceError for a file that is not a trace, or was recorded with other
    routers."""
    geometry = engine.loaded.plan.geometry
    traces = [load_trace(Path(path)) for path in paths]
    for path, trace in zip(paths, traces, strict=True):
        if not (is_bound_to(trace.model, engine.fingerprint) and trace.geometry.routes_like(geometry)):
            raise TraceError(
                f"{path} was recorded with another model than {engine.loaded.folder.name}: its routers are others.",
                "Record it with this one: moe-chat trace record --out FILE",
            )
    return [replace(trace, model=str(engine.fingerprint), geometry=geometry) for trace in traces]
