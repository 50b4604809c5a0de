"""llama.cpp itself, asked what it makes of a GGUF file, in a process of its own: it aborts on what it does not like.

Reached by ctypes in the wheel `xllamacpp`. Its parameters are passed as opaque bytes, larger than they are.
"""

from __future__ import annotations

import ctypes as c
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_VOCAB_ONLY_AT = 72
"""Where `llama_model_params.vocab_only` lies, in llama.cpp's `llama.h`."""


def has_llama_cpp() -> bool:
    """Whether the wheel is installed."""
    return importlib.util.find_spec("xllamacpp") is not None


def llama_tokens(path: Path, texts: Sequence[str], is_special: bool = True, adds: bool = False) -> list[list[int]]:
    """The ids of each text. `is_special`: control tokens in the text count as such; `adds`: bos and eos as the file
    wants them. Raises CalledProcessError where llama.cpp refuses the file."""
    found: list[list[int]] = json.loads(
        _asked({"task": "tokens", "path": str(path), "texts": list(texts), "is_special": is_special, "adds": adds})
    )
    return found


def llama_pieces(path: Path, sequences: Sequence[Sequence[int]]) -> list[bytes]:
    """The bytes that each sequence of ids stands for, piece by piece, control tokens included. Raises as
    `llama_tokens` does."""
    found: list[str] = json.loads(
        _asked({"task": "pieces", "path": str(path), "sequences": list(map(list, sequences))})
    )
    return list(map(bytes.fromhex, found))


def llama_logits(path: Path, ids: Sequence[int]) -> NDArray[np.float32]:
    """Logits [ids, vocab] behind each id, decoded one after the other on the processor. Raises CalledProcessError."""
    with tempfile.NamedTemporaryFile(suffix=".npy") as out:
        _asked({"task": "logits", "path": str(path), "ids": list(ids), "out": out.name})
        found: NDArray[np.float32] = np.load(out.name)
    return found


def _asked(question: dict[str, Any]) -> str:
    try:
        answer = subprocess.run(
            [sys.executable, __file__],
            input=json.dumps(question),
            capture_output=True,
            check=True,
            timeout=100,
            text=True,
        )
    except subprocess.CalledProcessError as error:
        error.add_note(error.stderr[-600:])
        raise
    return answer.stdout.splitlines()[-1]


class _Params(c.Structure):
    _fields_ = (("content", c.c_char * 512),)


class _Batch(c.Structure):
    """`llama_batch`: the number of tokens, then pointers that only llama.cpp follows."""

    _fields_ = (("num_tok", c.c_int32), ("pointers", c.c_void_p * 10))


def _library() -> Any:
    spec = importlib.util.find_spec("xllamacpp")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    library = c.CDLL(str(next(Path(spec.submodule_search_locations[0]).glob("xllamacpp*.so"))))
    for name, result, *arguments in (
        ("llama_model_default_params", _Params),
        ("llama_context_default_params", _Params),
        ("llama_model_load_from_file", c.c_void_p, c.c_char_p, _Params),
        ("llama_init_from_model", c.c_void_p, c.c_void_p, _Params),
        ("llama_model_get_vocab", c.c_void_p, c.c_void_p),
        ("llama_set_n_threads", None, c.c_void_p, c.c_int32, c.c_int32),
        ("llama_vocab_n_tokens", c.c_int32, c.c_void_p),
        (*("llama_tokenize", c.c_int32, c.c_void_p, c.c_char_p, c.c_int32), c.c_void_p, c.c_int32, c.c_bool, c.c_bool),
        (*("llama_token_to_piece", c.c_int32, c.c_void_p, c.c_int32, c.c_char_p), c.c_int32, c.c_int32, c.c_bool),
        ("llama_batch_get_one", _Batch, c.c_void_p, c.c_int32),
        ("llama_decode", c.c_int32, c.c_void_p, _Batch),
        ("llama_get_logits_ith", c.POINTER(c.c_float), c.c_void_p, c.c_int32),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    library.llama_backend_init()
    return library


def _model(library: Any, path: str, is_vocab_only: bool) -> Any:
    content = bytearray(bytes(library.llama_model_default_params()))
    assert content[_VOCAB_ONLY_AT] == 0
    content[_VOCAB_ONLY_AT] = is_vocab_only
    model = library.llama_model_load_from_file(path.encode(), _Params.from_buffer(content))
    if not model:
        raise SystemExit(f"llama.cpp refuses {path}")
    return model


def _tokens(question: Any) -> list[list[int]]:
    library = _library()
    vocabulary, found = library.llama_model_get_vocab(_model(library, question["path"], True)), []
    for text in question["texts"]:
        raw = text.encode()
        ids = (c.c_int32 * (len(raw) + 16))()
        count = library.llama_tokenize(
            vocabulary, raw, len(raw), ids, len(ids), question["adds"], question["is_special"]
        )
        assert count >= 0
        found.append(list(ids[:count]))
    return found


def _pieces(question: Any) -> list[str]:
    library = _library()
    vocabulary = library.llama_model_get_vocab(_model(library, question["path"], True))
    buffer = c.create_string_buffer(4096)
    known: dict[int, bytes] = {}

    def piece(token: int) -> bytes:
        if token not in known:
            size = library.llama_token_to_piece(vocabulary, token, buffer, len(buffer), 0, True)
            assert size >= 0
            known[token] = buffer.raw[:size]
        return known[token]

    return [b"".join(map(piece, ids)).hex() for ids in question["sequences"]]


def _logits(question: Any) -> list[int]:
    library = _library()
    model = _model(library, question["path"], False)
    context = library.llama_init_from_model(model, library.llama_context_default_params())
    assert context
    library.llama_set_n_threads(context, 1, 1)  # threads that wait for each other take minutes on a busy machine
    num_values = library.llama_vocab_n_tokens(library.llama_model_get_vocab(model))
    rows = np.empty((len(question["ids"]), num_values), np.float32)
    for row, token in zip(rows, question["ids"], strict=True):
        ids = (c.c_int32 * 1)(token)
        assert library.llama_decode(context, library.llama_batch_get_one(ids, 1)) == 0
        row[:] = np.ctypeslib.as_array(library.llama_get_logits_ith(context, -1), (num_values,))
    np.save(question["out"], rows)
    return list(rows.shape)


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    print(json.dumps({"tokens": _tokens, "pieces": _pieces, "logits": _logits}[asked["task"]](asked)))
