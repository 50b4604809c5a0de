"""llama.cpp's run: loads the file, reads the prompt in one batch, writes greedily. A program of its own.

No warm-up: the file is as cold for it as for the engine.
"""

from __future__ import annotations

import ctypes
import os
from time import perf_counter
from typing import Any

import numpy as np

from engine.commands.bench.peers.llamacpp_library import LOAD_MAPPED, LlamaLibrary, NoPeerError
from engine.commands.bench.peers.request import MIN_STEPS, SideRequest, Tell, begin_side, peak_rss_bytes

_PIECE_BYTES = 512


def main() -> None:
    """Tells load, first token, each step, the text and the peak; or an error."""
    request, tell = begin_side()
    try:
        _run(request, tell)
    except NoPeerError as error:
        tell({"error": error.message})


def _run(request: SideRequest, tell: Tell) -> None:
    start_s = perf_counter()
    library = LlamaLibrary()
    model = load_model(library, request.config.model, request.is_repacked)
    vocab = library.vocab(model)
    tokens = tokenize(library, vocab, request.prompt.rendered)
    context = _context(library, model, request, len(tokens))
    num_vocab = library.num_tok(vocab)
    tell({"stage": "reading the prompt", "load_ms": (perf_counter() - start_s) * 1e3, "version": library.version})
    written: list[int] = []
    batch, wrote_s = tokens, 0.0
    for number in range(request.new_tok):
        if number > MIN_STEPS and wrote_s > request.decode_limit_s:
            break
        start_s = perf_counter()
        token = _next_token(library, context, batch, num_vocab)
        took_ms = (perf_counter() - start_s) * 1e3
        wrote_s += took_ms / 1e3 if number else 0.0
        written.append(token)
        batch = [token]
        tell({"step_ms": took_ms} if number else {"stage": "writing", "ttft_ms": took_ms, "prompt_tok": len(tokens)})
    text = b"".join(_piece(library, vocab, token) for token in written).decode(errors="replace")
    tell({"stage": "done", "text": text, "ids": written, "peak_rss_bytes": peak_rss_bytes(os.getpid())})


def load_model(library: LlamaLibrary, path: str, is_repacked: bool, *, is_vocab_only: bool = False) -> Any:
    """An opaque model. Raises NoPeerError where llama.cpp refuses the file."""
    params = library.model_params()
    params.vocab_only = is_vocab_only
    params.use_extra_bufts = is_repacked
    params.n_gpu_layers = 0
    params.load_mode = LOAD_MAPPED
    model = library.load(os.fsencode(path), params)
    if not model:
        raise NoPeerError(f"llama.cpp refuses {path}.", "Try another file.")
    return model


def tokenize(library: LlamaLibrary, vocab: Any, text: str) -> list[int]:
    """The ids of a rendered prompt; control tokens are those its text names."""
    encoded = text.encode()
    out = (ctypes.c_int32 * (len(encoded) + 8))()
    count = library.tokenize(vocab, encoded, len(encoded), out, len(out), False, True)
    if count < 0:
        raise NoPeerError("llama.cpp cannot encode the prompt.", "Try another file.")
    return list(out[:count])


def _context(library: LlamaLibrary, model: Any, request: SideRequest, prompt_tok: int) -> Any:
    params = library.context_params()
    params.n_ctx = request.config.context_tok or prompt_tok + request.new_tok
    params.n_batch = max(params.n_batch, prompt_tok)
    params.n_threads = params.n_threads_batch = request.config.compute_threads or os.cpu_count() or 1
    context = library.context(model, params)
    if not context:
        raise NoPeerError("llama.cpp could not make a context.", "Ask for a shorter one: --context.")
    return context


def _next_token(library: LlamaLibrary, context: Any, tokens: list[int], num_vocab: int) -> int:
    array = (ctypes.c_int32 * len(tokens))(*tokens)
    status = library.decode(context, library.one_sequence(array, len(tokens)))
    if status != 0:
        raise NoPeerError(f"llama.cpp's decode failed with status {status}.", "Try another file.")
    logits = np.ctypeslib.as_array(library.logits(context, -1), (num_vocab,))
    token = int(logits.argmax())
    if not np.isfinite(logits[token]):
        raise NoPeerError("llama.cpp's logits are not finite.", "Try another file.")
    return token


def _piece(library: LlamaLibrary, vocab: Any, token: int) -> bytes:
    out = ctypes.create_string_buffer(_PIECE_BYTES)
    count = library.piece(vocab, token, out, _PIECE_BYTES, 0, False)
    return out.raw[: max(count, 0)]


if __name__ == "__main__":
    main()
