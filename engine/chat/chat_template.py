"""A model's chat template: found, rendered, and checked once that what is said in a chat does arrive in the prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.api import Message
from engine.chat.template_renderer import TemplateLimitExceeded, TemplateRefused, TemplateRenderer, shared_renderer
from engine.errors import CheckpointError, UnsupportedModelError

PROBE = "Probe7243"
"""A text that no template writes by itself."""
_OPEN_END = "OpenEnd7243 "
"""Marks where an answer that is to be continued ends. Its space tells whether the template strips texts."""
_MOST_ERROR_CHARS = 300


class MessageLeftOut(UnsupportedModelError):
    """What someone says does not arrive in the prompt."""


_Turn = Mapping[str, object]
_HELLO = Message("user", "Hello.")
_PROBES: Mapping[str, Sequence[Sequence[Message]]] = {
    "user": ([Message("user", PROBE)], [Message("system", "Be brief."), Message("user", PROBE)]),
    "system": ([Message("system", PROBE), _HELLO],),
    "assistant": ([_HELLO, Message("assistant", PROBE), _HELLO],),
}
"""Role -> conversations with a text of that role; the first that the template accepts is looked at."""


class ChatTemplate:
    """Of one model. Every rendering goes through `shared_renderer`, unless another is given."""

    def __init__(
        self,
        tokenizer: Any,
        is_cancelled: Callable[[], bool] = lambda: False,
        renderer: TemplateRenderer | None = None,
    ) -> None:
        """Raises CheckpointError when the model's template is not a text."""
        self.file = _file_of(tokenizer)
        self.text = _text_of(tokenizer, self.file)
        self._variables = {name: _plain(value) for name, value in tokenizer.special_tokens_map.items()} if self else {}
        self._is_cancelled = is_cancelled
        self._renderer = renderer or shared_renderer()
        self._takes_parts: dict[str, bool] = {}
        """Role -> whether the template wants its content as a list of parts; found out when it is first needed."""
        self._takes_system = True

    def __bool__(self) -> bool:
        """Whether the model has one."""
        return bool(self.text)

    def render(self, messages: Sequence[Message], variables: Mapping[str, object], is_left_open: bool = False) -> str:
        """The prompt's text: the assistant's turn opened, or, with `is_left_open`, its last answer left open.

        A system prompt that the template refuses or leaves out goes before the user's first message. Raises
        UnsupportedModelError when the template refuses, exceeds its limits, or leaves a message out.
        """
        try:
            self._check(messages)
            return self._rendered(messages if self._takes_system else _merged(messages), variables, is_left_open)
        except TemplateRefused as error:
            if messages == _merged(messages):
                raise self._refused(error) from error
        try:
            return self._rendered(_merged(messages), variables, is_left_open)
        except TemplateRefused as error:
            raise self._refused(error) from error

    def probe(
        self, messages: Sequence[Message], variables: Mapping[str, object], opens_answer: bool = True
    ) -> str | None:
        """The text of a short conversation; None where the template refuses it."""
        try:
            self._check(messages)
            return self._run(self._turns(messages), {**variables, "add_generation_prompt": opens_answer})
        except TemplateRefused:
            return None

    def check(self) -> None:
        """Raises UnsupportedModelError when what the user says does not arrive in the prompt."""
        if self:
            self._check([Message("user", PROBE)])

    # -- rendering -----------------------------------------------------------------------------------------------------

    def _rendered(self, messages: Sequence[Message], variables: Mapping[str, object], is_left_open: bool) -> str:
        if not is_left_open:
            return self._run(self._turns(messages), {**variables, "add_generation_prompt": True})
        *before, last = messages
        marked = Message(last.role, last.content + _OPEN_END, last.thinking)
        text = self._run(self._turns([*before, marked]), {**variables, "add_generation_prompt": False})
        at = text.rfind(_OPEN_END.strip())
        if at < 0 or last.content.strip() not in text:
            raise TemplateRefused("it does not write the answer that is to be continued")
        return text[:at] if text.startswith(_OPEN_END, at) else text[:at].rstrip()

    def _run(self, turns: Sequence[_Turn], variables: Mapping[str, object]) -> str:
        known = {"messages": turns, "tools": None, "documents": None, **self._variables, **variables}
        try:
            return self._renderer.render(self.text, known, self._is_cancelled)
        except TemplateLimitExceeded as error:
            raise UnsupportedModelError(
                f"The chat template in {self.file} {error}, and was stopped.",
                "It is damaged, or not made to be rendered: fetch the model's files again, or pick another model.",
            ) from error

    def _turns(self, messages: Sequence[Message]) -> list[_Turn]:
        return _turns(messages, self._takes_parts)

    def _refused(self, error: TemplateRefused) -> UnsupportedModelError:
        reason = " ".join(str(error).split())
        reason = reason if len(reason) <= _MOST_ERROR_CHARS else reason[:_MOST_ERROR_CHARS] + "…"
        return UnsupportedModelError(
            f"The model's chat template refused the conversation: {reason}",
            f"Start a new chat; if that is refused too, the template in {self.file} is damaged or of another kind.",
        )

    # -- whether texts arrive ------------------------------------------------------------------------------------------

    def _check(self, messages: Sequence[Message]) -> None:
        """Of every role that is used, once. What the template refuses tells nothing, and is checked again."""
        for role in dict.fromkeys(("user", *(message.role for message in messages))):
            if role not in self._takes_parts:
                self._find_out(role)

    def _find_out(self, role: str) -> None:
        is_left_out = False
        for takes_parts in (False, True):
            arrives = self._arrives(role, takes_parts)
            if arrives:
                self._takes_parts[role] = takes_parts
                return
            is_left_out |= arrives is False
        if not is_left_out:
            return
        if role == "system":
            self._takes_parts[role] = self._takes_system = False
            return
        speaker = "the user says" if role == "user" else "the model has answered"
        raise MessageLeftOut(
            f"The chat template in {self.file} leaves out what {speaker}: the model would never see it.",
            "It is made for another kind of input, or damaged: fetch the model's files again, or pick another model.",
        )

    def _arrives(self, role: str, takes_parts: bool) -> bool | None:
        """Whether a text of this role is in the prompt; None: the template refuses every conversation with one."""
        formats = self._takes_parts | {role: takes_parts}
        for messages in _PROBES.get(role, ()):
            try:
                text = self._run(_turns(messages, formats), {"add_generation_prompt": True})
            except TemplateRefused:
                continue
            return PROBE.lower() in text.lower()
        return None


def _turns(messages: Sequence[Message], takes_parts: Mapping[str, bool]) -> list[_Turn]:
    """As templates want them. Thinking has the two names that templates read it by."""
    turns: list[_Turn] = []
    for message in messages:
        content: object = message.content
        if takes_parts.get(message.role):
            content = [{"type": "text", "text": message.content}]
        turn: dict[str, object] = {"role": message.role, "content": content}
        if message.thinking:
            turn = {"thinking": message.thinking, **turn, "reasoning_content": message.thinking}
        turns.append(turn)
    return turns


def _merged(messages: Sequence[Message]) -> Sequence[Message]:
    """With the text of a system message before that of the next one; some templates know no system role."""
    if len(messages) < 2 or messages[0].role != "system":
        return messages
    system, first, *rest = messages
    return [Message(first.role, f"{system.content}\n\n{first.content}", first.thinking), *rest]


def _text_of(tokenizer: Any, file: str) -> str:
    """The template for chats without tools; empty: there is none."""
    if not getattr(tokenizer, "chat_template", None):
        return ""
    try:
        text = tokenizer.get_chat_template()
    except Exception as error:  # the library raises several kinds on templates by name, none of them "default"
        raise CheckpointError(f"{file} has no chat template to use: {error}", "Fetch the file again.") from error
    if not isinstance(text, str):
        raise CheckpointError(
            f"The chat template in {file} is a {type(text).__name__}, not a text.", "Fetch the file again."
        )
    return text


def _file_of(tokenizer: Any) -> str:
    """Where the template is written, for messages."""
    folder = Path(str(getattr(tokenizer, "name_or_path", "") or ""))
    if folder.suffix == ".gguf":
        return str(folder)
    for name in ("chat_template.jinja", "chat_template.json"):
        if (folder / name).is_file():
            return str(folder / name)
    return str(folder / "tokenizer_config.json")


def _plain(value: object) -> object:
    """A special token, or a list of them, as JSON has it."""
    return [str(token) for token in value] if isinstance(value, (list, tuple)) else str(value)
