"""From messages to token ids: the chat template, continuing and trimming, and the tokens that end an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from transformers import GenerationConfig

from engine.api import Message
from engine.chat.thinking_marks import HARMONY, find_format
from engine.errors import ConfigError, ContextFullError, UnsupportedModelError

_PLAIN_TEMPLATE: Mapping[str, object] = {}
_PROBE = "PROBE"
_MIN_RESERVE_TOK = 32


def encode(
    tokenizer: Any,
    messages: Sequence[Message],
    variables: Mapping[str, object] = _PLAIN_TEMPLATE,
    continues: bool = False,
) -> list[int]:
    """The prompt's token ids, the assistant's turn opened; or, with `continues`, left open behind its partial answer.

    `variables` go to the chat template. Raises UnsupportedModelError when the template refuses, and ConfigError when
    there is no answer to continue.
    """
    if continues and (not messages or messages[-1].role != "assistant"):
        raise ConfigError("There is no answer to continue.", "Ask a question first.")
    if continues and not messages[-1].content:
        return _continued_thinking(tokenizer, messages, variables)
    if not getattr(tokenizer, "chat_template", None):
        return list(tokenizer(_plain(messages, continues))["input_ids"])
    ending = {"continue_final_message": True} if continues else {"add_generation_prompt": True}
    encoded = _templated(tokenizer, _turns(messages), {**variables, **ending, "tokenize": True, "return_dict": True})
    return list(encoded["input_ids"])


def _continued_thinking(tokenizer: Any, messages: Sequence[Message], variables: Mapping[str, object]) -> list[int]:
    """The answer was stopped while the model thought: its thinking is opened again, and left open."""
    before, thinking, marks = messages[:-1], messages[-1].thinking, find_format(tokenizer)
    if not thinking or marks is None or not getattr(tokenizer, "chat_template", None):
        return encode(tokenizer, before, variables)
    options = {**variables, "add_generation_prompt": True, "tokenize": False}
    opened = str(_templated(tokenizer, _turns(before), options))
    if not opened.rstrip().endswith(marks.opening):
        opened += marks.opening if marks.is_harmony else marks.opening + "\n"
    return list(tokenizer(opened + thinking, add_special_tokens=False)["input_ids"])


def _turns(messages: Sequence[Message]) -> list[dict[str, str]]:
    """As templates want them; the library passes `reasoning_content` on under every name that templates read."""
    return [
        {"role": message.role, "content": message.content}
        | ({"reasoning_content": message.thinking} if message.thinking else {})
        for message in messages
    ]


def _templated(tokenizer: Any, turns: list[dict[str, str]], options: Mapping[str, object]) -> Any:
    try:
        return tokenizer.apply_chat_template(turns, **options)
    except Exception as error:  # templates are programs of the model's authors and raise what they like
        if not turns or turns[0]["role"] != "system" or len(turns) == 1:
            raise _refused(error) from error
    rest = [{**turns[1], "content": f"{turns[0]['content']}\n\n{turns[1]['content']}"}, *turns[2:]]
    try:  # some templates know no system role: its text goes before the first message of the user
        return tokenizer.apply_chat_template(rest, **options)
    except Exception as error:  # as above
        raise _refused(error) from error


def _refused(error: Exception) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"The model's chat template refused the conversation: {error}",
        "Start a new chat; if that is refused too, the model's chat template is damaged or of another kind.",
    )


def _plain(messages: Sequence[Message], continues: bool) -> str:
    """A model without a chat template is given the text, role by role."""
    text = "\n".join(f"{message.role.capitalize()}:{_spaced(message.content)}" for message in messages)
    return text if continues else f"{text}\nAssistant:"


def _spaced(content: str) -> str:
    """With the space after the colon that an answer brings along itself."""
    return content if content[:1].isspace() else f" {content}"


# -- fitting into the context ------------------------------------------------------------------------------------------


class Fitted(NamedTuple):
    """A prompt that fits, and how many messages were left out for it."""

    prompt: list[int]
    num_left_out: int


def fit(
    messages: Sequence[Message],
    encode_all: Callable[[Sequence[Message]], list[int]],
    context_tok: int,
    max_new_tok: int | None,
    trims_oldest: bool,
    num_left_out_before: int = 0,
) -> Fitted:
    """The prompt of `messages`; with `trims_oldest` of as many as leave a reserve for the answer.

    Whole turns go, the oldest first: a message of the user with the answers to it. System messages at the beginning
    and the last turn stay. What was left out before is left out again where that is enough, and where more must go, an
    eighth of the context is freed besides: a prompt that begins as the last one did need not be computed anew.
    Raises ContextFullError when no token could be written after what must stay.
    """
    prompt = encode_all(messages)
    limit = context_tok - reserve_tok(context_tok, max_new_tok)
    if not trims_oldest or len(prompt) <= limit:
        check_fits(len(prompt), context_tok)
        return Fitted(prompt, 0)
    num_system, starts = _turn_starts(messages)

    def without(num_turns: int) -> Fitted:
        kept = [*messages[:num_system], *messages[starts[num_turns] :]]
        return Fitted(encode_all(kept), starts[num_turns] - num_system)

    if num_left_out_before and num_system + num_left_out_before in starts:
        fitted = without(starts.index(num_system + num_left_out_before))
        if len(fitted.prompt) <= limit:
            return fitted
    fitted = _fewest(without, len(starts) - 1, limit - context_tok // 8)
    check_fits(len(fitted.prompt), context_tok)
    return fitted


def _fewest(without: Callable[[int], Fitted], most: int, limit_tok: int) -> Fitted:
    """With the fewest turns left out, at least one and at most `most`, that come within the limit; else with `most`."""
    low, high = min(1, most), most
    while low < high:
        middle = (low + high) // 2
        fits = len(without(middle).prompt) <= limit_tok
        low, high = (low, middle) if fits else (middle + 1, high)
    return without(high)


def reserve_tok(context_tok: int, max_new_tok: int | None) -> int:
    """Tokens kept free for the answer: an eighth of the context, at least 32, and no more than were asked for."""
    reserve = min(max(context_tok // 8, _MIN_RESERVE_TOK), context_tok // 2)
    return min(reserve, max_new_tok) if max_new_tok is not None else reserve


def _turn_starts(messages: Sequence[Message]) -> tuple[int, list[int]]:
    """How many system messages there are at the beginning, and where each turn after them begins."""
    num_system = next((i for i, message in enumerate(messages) if message.role != "system"), len(messages))
    users = [i for i, message in enumerate(messages) if message.role == "user"]
    return num_system, [num_system, *(i for i in users if i > num_system)]


def common_prefix(cached: Sequence[int], prompt: Sequence[int]) -> int:
    """How many leading ids agree; less than the prompt, whose last token must be computed for its logits."""
    limit = min(len(cached), len(prompt) - 1)
    for position in range(limit):
        if cached[position] != prompt[position]:
            return position
    return max(limit, 0)


def check_fits(num_prompt_tok: int, context_tok: int) -> None:
    """Raises ContextFullError when no token could be written after the prompt."""
    if num_prompt_tok >= context_tok:
        raise ContextFullError(
            f"The conversation has {num_prompt_tok} tokens; the context holds {context_tok}.",
            "Start a new chat, shorten the message, or give the engine more context (--context) and memory.",
            num_prompt_tok,
            context_tok,
        )


# -- where an answer ends ----------------------------------------------------------------------------------------------


def end_tokens(tokenizer: Any, generation_config: GenerationConfig, model_config: Any) -> frozenset[int]:
    """Every id that ends an answer: from the generation config, the model's config, the tokenizer, and what the chat
    template closes an assistant's message with."""
    found: set[int] = set()
    for value in (
        generation_config.eos_token_id,
        getattr(model_config, "eos_token_id", None),
        getattr(getattr(model_config, "text_config", None), "eos_token_id", None),
        getattr(tokenizer, "eos_token_id", None),
        _closing_token(tokenizer),
    ):
        found.update([value] if isinstance(value, int) else value or [])
    return frozenset(found)


def _closing_token(tokenizer: Any) -> int | None:
    """The added token that follows the assistant's text in the template; None: there is none, or it is a channel's."""
    if not getattr(tokenizer, "chat_template", None):
        return None
    turns = [{"role": "user", "content": _PROBE}, {"role": "assistant", "content": _PROBE}]
    try:
        _, _, closing = str(tokenizer.apply_chat_template(turns, tokenize=False)).rpartition(_PROBE)
    except Exception:  # noqa: BLE001 - templates are programs of the model's authors and raise what they like
        return None
    added = {token.content: number for number, token in tokenizer.added_tokens_decoder.items()}
    longest = max((text for text in added if closing.lstrip().startswith(text)), key=len, default="")
    is_channel = longest == HARMONY.closing and find_format(tokenizer) is HARMONY
    return None if is_channel else added.get(longest)
