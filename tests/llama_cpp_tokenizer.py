"""llama.cpp's own tokenizer of a GGUF file, asked in a process of its own: it aborts on what it does not like.

Reached by ctypes in the wheel `xllamacpp`. Its parameters are passed as opaque bytes, larger than they are.
"""

from __future__ import annotations

import ctypes as c
import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_VOCAB_ONLY_AT = 72
"""Where `llama_model_params.vocab_only` lies, in llama.cpp's `llama.h`."""


def has_llama_cpp() -> bool:
    """Whether the wheel is installed."""
    return importlib.util.find_spec("xllamacpp") is not None


def llama_tokens(path: Path, texts: Sequence[str], is_special: bool = True, adds: bool = False) -> list[list[int]]:
    """The ids of each text. `is_special`: control tokens in the text count as such; `adds`: bos and eos as the file
    wants them. Raises CalledProcessError where llama.cpp refuses the file."""
    question = json.dumps({"path": str(path), "texts": list(texts), "is_special": is_special, "adds": adds})
    answer = subprocess.run(
        [sys.executable, __file__], input=question, capture_output=True, check=True, timeout=100, text=True
    )
    found: list[list[int]] = json.loads(answer.stdout.splitlines()[-1])
    return found


class _Params(c.Structure):
    _fields_ = (("content", c.c_char * 512),)


def _library() -> Any:
    spec = importlib.util.find_spec("xllamacpp")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    library = c.CDLL(str(next(Path(spec.submodule_search_locations[0]).glob("xllamacpp*.so"))))
    library.llama_model_default_params.restype = _Params
    library.llama_model_load_from_file.argtypes = (c.c_char_p, _Params)
    for name in ("llama_model_load_from_file", "llama_model_get_vocab"):
        getattr(library, name).restype = c.c_void_p
    library.llama_model_get_vocab.argtypes = (c.c_void_p,)
    library.llama_tokenize.argtypes = (c.c_void_p, c.c_char_p, c.c_int32, c.c_void_p, c.c_int32, c.c_bool, c.c_bool)
    return library


def _answer(question: Any) -> list[list[int]]:
    library = _library()
    library.llama_backend_init()
    params = library.llama_model_default_params()
    content = bytearray(bytes(params))
    assert content[_VOCAB_ONLY_AT] == 0
    content[_VOCAB_ONLY_AT] = 1
    model = library.llama_model_load_from_file(question["path"].encode(), _Params.from_buffer(content))
    if not model:
        raise SystemExit(f"llama.cpp refuses {question['path']}")
    vocabulary, found = library.llama_model_get_vocab(model), []
    for text in question["texts"]:
        raw = text.encode()
        ids = (c.c_int32 * (len(raw) + 16))()
        flags = (question["adds"], question["is_special"])
        count = library.llama_tokenize(vocabulary, raw, len(raw), ids, len(ids), *flags)
        assert count >= 0
        found.append(list(ids[:count]))
    return found


if __name__ == "__main__":
    print(json.dumps(_answer(json.load(sys.stdin))))
