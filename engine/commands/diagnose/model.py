"""Checks of the model: its files, its chat template, whether it fits, and how fast its experts can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from engine.backends.tokenizers.gguf_tokenizer import read_tokenizer
from engine.backends.transformers.config_and_tokenizer import load_tokenizer
from engine.chat.chat_template import ChatTemplate
from engine.chat.thinking_switch import find_choices
from engine.checkpoint.architectures import ANOTHER_MODEL
from engine.checkpoint.gguf.header import read_gguf
from engine.checkpoint.gguf.location import is_gguf
from engine.checkpoint.gguf.metadata import Metadata
from engine.checkpoint.model_source import local_model
from engine.checkpoint.shards import choose_shards
from engine.checkpoint.stored_tensors import checkpoint_files, stored_tensors
from engine.commands.diagnose.check import FAIL, OK, WARN, Check
from engine.commands.diagnose.link_trial import try_link
from engine.commands.model_menu import describe_model
from engine.commands.plan_model import plan_model
from engine.config import DEMO_MODEL, EngineConfig, format_bytes
from engine.demo.location import built_demo
from engine.demo.model import NEEDED_BYTES
from offload.link.expert_source import CACHED

_SLOW_BYTES_PER_S = 200e6


class ModelExamination:
    """Checks of one model. Downloads and builds nothing, and keeps no weight."""

    def __init__(self, config: EngineConfig, is_cancelled: Callable[[], bool]) -> None:
        self._config, self._is_cancelled = config, is_cancelled
        self._folder: Path | None = None
        self._keeps_cached = False

    def steps(self) -> Iterator[tuple[str, Callable[[], Check]]]:
        """See Examination."""
        yield "model", self._model
        for name, run_check in (
            ("checkpoint", self._checkpoint),
            ("chat template", self._template),
            ("fit", self._fit),
            ("link", self._link),
        ):
            yield name, partial(self._if_present, name, run_check)

    def _if_present(self, name: str, run_check: Callable[[Path], Check]) -> Check:
        if self._folder is None:
            return Check(name, WARN, "not checked: there is no model to check")
        return run_check(self._folder)

    def _model(self) -> Check:
        name = self._config.model
        self._folder = built_demo() if name == DEMO_MODEL else local_model(name)
        if self._folder is None:
            advice = "It is downloaded when it is chosen."
            if name == DEMO_MODEL:
                advice = f"It is built when it is chosen; that takes {format_bytes(NEEDED_BYTES)} of disk."
            return Check("model", WARN, f"{name} is not on this machine", advice)
        entry = describe_model(self._folder, self._config)
        if not entry.is_supported:
            self._folder = None if entry.total_bytes is None else self._folder
            return Check("model", FAIL, f"{name}: {entry.reason}", ANOTHER_MODEL)
        shape = f"{entry.num_layers} layers, {entry.num_experts} experts, {entry.top_k} a token"
        formats = f", {entry.formats}" if entry.formats else ""
        least = f"; a budget from about {format_bytes(entry.costs.least_bytes)} on" if entry.costs else ""
        size = format_bytes(entry.total_bytes or 0)
        return Check("model", OK, f"{name}: {entry.architecture}, {shape}, {size}{formats}{least}")

    def _checkpoint(self, folder: Path) -> Check:
        num_files, num_tensors, notices = _counted(folder)
        files_text = "one file" if num_files == 1 else f"{num_files} files"
        found = f"{num_tensors} tensors in {files_text}; headers and lengths agree"
        return Check("checkpoint", WARN if notices else OK, found, notices)

    def _template(self, folder: Path) -> Check:
        template = ChatTemplate(_tokenizer_of(folder), self._is_cancelled)
        if not template:
            found = "there is none: the conversation is given to the model as plain text"
            return Check("chat template", WARN, found, "Pick a model that is tuned for chats.")
        template.check()
        choices = ", ".join(find_choices(template))
        thinking = f"thinking can be {choices}" if choices else "it has no switch for thinking"
        return Check("chat template", OK, f"there is one; {thinking}")

    def _fit(self, folder: Path) -> Check:
        report = plan_model(self._config, folder, self._is_cancelled).report
        budget, slots = report["budget_bytes"], report["slots"]
        residency, context_tok = report["residency"], report["context_tok"]
        self._keeps_cached = bool(report["keeps_files_cached"])
        assert isinstance(budget, int)
        found = f"{format_bytes(budget)}: {slots} ({residency:.0%} of the experts)"
        return Check("fit", OK, f"{found}, context {context_tok} tokens")

    def _link(self, folder: Path) -> Check:
        trial = try_link(folder, self._config.link_threads, self._is_cancelled)
        if trial is None:
            return Check("link", WARN, "not measured: no expert was found in the files")
        found = f"{format_bytes(trial.num_bytes)} of experts at {_rate(trial.bytes_per_s)}, reads are {trial.reads}"
        if self._keeps_cached:
            found += f"; the chat reads them {CACHED}"
        if self._config.link_bytes_per_s is not None:
            found += f"; the chat's link is emulated at {_rate(self._config.link_bytes_per_s)}"
        if trial.bytes_per_s < _SLOW_BYTES_PER_S:
            return Check("link", WARN, found, "Move the model to a faster disk.")
        return Check("link", OK, found)


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e9:.2f} GB/s"


def _counted(model: Path) -> tuple[int, int, str]:
    """(files, tensors, what should be known of other files beside them)."""
    if is_gguf(model):
        file = read_gguf(model)
        return len(file.paths), len(file.tensors), ""
    return len(checkpoint_files(model)), len(stored_tensors(model)), " ".join(choose_shards(model).notices)


def _tokenizer_of(model: Path) -> Any:
    return read_tokenizer(Metadata(read_gguf(model))).tokenizer if is_gguf(model) else load_tokenizer(model)
