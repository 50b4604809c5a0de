"""Run as a program: llama.cpp's logits after a prompt, in a process of its own since it ends the process on an error.

Arguments: a GGUF file, a file to write the logits to (numpy), token ids.
"""

from __future__ import annotations

import ctypes
import os
import sys

import numpy as np

from engine.commands.bench.peers.llamacpp_library import LOAD_MAPPED, LlamaLibrary


def main() -> None:
    path, target, *ids = sys.argv[1:]
    library, tokens = LlamaLibrary(), (ctypes.c_int32 * len(ids))(*map(int, ids))
    params = library.model_params()
    params.n_gpu_layers, params.use_extra_bufts, params.load_mode = 0, False, LOAD_MAPPED
    model = library.load(os.fsencode(path), params)
    context_params = library.context_params()
    context_params.n_ctx = context_params.n_batch = 1024
    context_params.n_threads = context_params.n_threads_batch = 1
    context = library.context(model, context_params)
    assert library.decode(context, library.one_sequence(tokens, len(ids))) == 0
    num_tok = library.num_tok(library.vocab(model))
    np.save(target, np.ctypeslib.as_array(library.logits(context, -1), (num_tok,)))


if __name__ == "__main__":
    main()
