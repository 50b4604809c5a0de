"""A question of a wanted number of tokens, as both sides will count them. A program of its own: it loads llama.cpp.

The chat template is the file's own, rendered within the limits that untrusted templates have everywhere.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

from engine.api import Message
from engine.chat.template_renderer import TemplateLimitExceeded, TemplateRefused, TemplateRenderer
from engine.child_process import answers_on_stdout, end_with_parent
from engine.commands.bench.peers.llamacpp_library import LlamaLibrary, NoPeerError
from engine.commands.bench.peers.llamacpp_side import load_model, tokenize
from engine.commands.bench.peers.request import Prompt
from engine.profiles.prompt_sets import shipped_prompts

_SYSTEM = "You are a helpful assistant."


def main() -> None:
    """Arguments: parent's process id, file, tokens. Prints the prompt, or an error, as JSON."""
    end_with_parent(int(sys.argv[1]))
    answers = answers_on_stdout()
    try:
        told: dict[str, Any] = {"prompt": asdict(_fitted(sys.argv[2], int(sys.argv[3])))}
    except NoPeerError as error:
        told = {"error": error.message, "hint": error.hint}
    print(json.dumps(told), file=answers)


def _fitted(path: str, wanted_tok: int) -> Prompt:
    """The longest question of at most `wanted_tok` tokens with its template; one word at least."""
    library = LlamaLibrary()
    model = load_model(library, path, False, is_vocab_only=True)
    vocab = library.vocab(model)
    template = library.template(model, None)
    if not template:
        raise NoPeerError(f"{path} has no chat template.", "Measure a file of a chat model.")
    specials = {name: _token_text(library, vocab, name) for name in ("bos", "eos")}
    renderer = TemplateRenderer()
    words = " ".join(" ".join(shipped_prompts(domain)) for domain in ("documents", "general", "knowledge")).split()

    def prompt_of(num_words: int) -> Prompt:
        messages = (Message("system", _SYSTEM), Message("user", " ".join(words[:num_words])))
        variables = {
            "messages": [{"role": message.role, "content": message.content} for message in messages],
            "add_generation_prompt": True,
            "bos_token": specials["bos"],
            "eos_token": specials["eos"],
        }
        try:
            rendered = renderer.render(template.decode(), variables)
        except (TemplateRefused, TemplateLimitExceeded) as error:
            raise NoPeerError(f"{path}: its chat template fails: {error}", "Measure another file.") from error
        return Prompt(messages, rendered, len(tokenize(library, vocab, rendered)))

    low, high = 1, min(len(words), wanted_tok)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if prompt_of(middle).num_tok <= wanted_tok else (low, middle - 1)
    return prompt_of(low)


def _token_text(library: LlamaLibrary, vocab: Any, name: str) -> str:
    token = getattr(library, name)(vocab)
    return library.token_text(vocab, token).decode(errors="replace") if token >= 0 else ""


if __name__ == "__main__":
    main()
