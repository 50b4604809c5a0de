"""llama.cpp's C interface, as far as the bench needs it, in the shared object of the wheel `xllamacpp`.

Structures are passed by value, so their layouts belong to a version. `LlamaLibrary` checks the defaults the library
fills in before it believes in them. Parameters that the bench does not set keep the library's defaults.
"""

from __future__ import annotations

import ctypes
import importlib.util
from importlib.metadata import version
from pathlib import Path
from typing import Any

from engine.errors import MoeChatError

_int32, _uint32, _float, _pointer, _bool = (
    ctypes.c_int32,
    ctypes.c_uint32,
    ctypes.c_float,
    ctypes.c_void_p,
    ctypes.c_bool,
)
LOAD_MAPPED, LOAD_AUTO = 1, -1
"""`llama_model_params.load_mode`."""


class NoPeerError(MoeChatError):
    """llama.cpp cannot be used here."""

    title = "No llama.cpp"


class ModelParams(ctypes.Structure):
    """`llama_model_params`"""

    _fields_ = (
        ("devices", _pointer),
        ("tensor_buft_overrides", _pointer),
        ("n_gpu_layers", _int32),
        ("split_mode", _int32),
        ("load_mode", _int32),
        ("lazy_mode", _int32),
        ("main_gpu", _int32),
        ("tensor_split", _pointer),
        ("progress_callback", _pointer),
        ("progress_callback_user_data", _pointer),
        ("kv_overrides", _pointer),
        ("vocab_only", _bool),
        ("check_tensors", _bool),
        ("use_extra_bufts", _bool),
        ("no_host", _bool),
        ("no_alloc", _bool),
        ("load_mtp", _bool),
        ("spare", ctypes.c_uint8 * 64),
    )


class ContextParams(ctypes.Structure):
    """The beginning of `llama_context_params`; the rest keeps the library's defaults."""

    _fields_ = (
        ("n_ctx", _uint32),
        ("n_batch", _uint32),
        ("n_ubatch", _uint32),
        ("n_seq_max", _uint32),
        ("n_rs_seq", _uint32),
        ("n_outputs_max", _uint32),
        ("n_outputs_max_per_seq", _uint32),
        ("n_threads", _int32),
        ("n_threads_batch", _int32),
        ("spare", ctypes.c_uint8 * 220),
    )


class Batch(ctypes.Structure):
    """`llama_batch`"""

    _fields_ = (
        ("n_tokens", _int32),
        ("token", ctypes.POINTER(_int32)),
        ("embd", _pointer),
        ("pos", _pointer),
        ("n_seq_id", _pointer),
        ("seq_id", _pointer),
        ("logits", _pointer),
    )


_LogCallback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, _pointer)


class LlamaLibrary:
    """The functions, with their types. Raises NoPeerError where the wheel is missing or is laid out otherwise."""

    def __init__(self) -> None:
        spec = importlib.util.find_spec("xllamacpp")
        if spec is None or spec.origin is None:
            raise NoPeerError("llama.cpp is not installed.", "Install it: pip install xllamacpp")
        self.version = f"xllamacpp {version('xllamacpp')}"
        try:
            self._library = ctypes.CDLL(str(next(Path(spec.origin).parent.glob("*.so"))))
            self._declare()
        except (OSError, AttributeError, StopIteration) as error:
            raise self._unknown(str(error)) from error
        self._on_log = _LogCallback(lambda level, text, user: None)
        self.log_set(self._on_log, None)
        self.backend_init()
        self._check_layout()

    def _declare(self) -> None:
        text, size = ctypes.c_char_p, ctypes.c_int32
        tokens = ctypes.POINTER(_int32)
        self.log_set = self._function("log_set", None, _LogCallback, _pointer)
        self.backend_init = self._function("backend_init", None)
        self.supports_gpu = self._function("supports_gpu_offload", _bool)
        self.model_params = self._function("model_default_params", ModelParams)
        self.context_params = self._function("context_default_params", ContextParams)
        self.load = self._function("model_load_from_file", _pointer, text, ModelParams)
        self.context = self._function("init_from_model", _pointer, _pointer, ContextParams)
        self.vocab = self._function("model_get_vocab", _pointer, _pointer)
        self.num_tok = self._function("vocab_n_tokens", _int32, _pointer)
        self.template = self._function("model_chat_template", text, _pointer, text)
        self.token_text = self._function("vocab_get_text", text, _pointer, _int32)
        self.bos, self.eos = (self._function(f"vocab_{name}", _int32, _pointer) for name in ("bos", "eos"))
        self.tokenize = self._function("tokenize", _int32, _pointer, text, size, tokens, size, _bool, _bool)
        self.piece = self._function("token_to_piece", _int32, _pointer, _int32, text, size, _int32, _bool)
        self.one_sequence = self._function("batch_get_one", Batch, tokens, _int32)
        self.decode = self._function("decode", _int32, _pointer, Batch)
        self.logits = self._function("get_logits_ith", ctypes.POINTER(_float), _pointer, _int32)

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        function = getattr(self._library, f"llama_{name}")
        function.restype, function.argtypes = result, arguments
        return function

    def _check_layout(self) -> None:
        """A field at another place would have another value than the library's documented default."""
        model, context = self.model_params(), self.context_params()
        found = (
            *(model.main_gpu, model.load_mode, model.lazy_mode, model.vocab_only, model.use_extra_bufts),
            *(context.n_ctx, context.n_batch, context.n_ubatch, context.n_seq_max),
        )
        expected = (0, LOAD_AUTO, 1, False, True, 512, 2048, 512, 1)
        if found != expected or not 0 < context.n_threads <= 1024 or context.n_threads != context.n_threads_batch:
            raise self._unknown(f"defaults are {found}")

    def _unknown(self, why: str) -> NoPeerError:
        message = f"{self.version} has another interface than this bench knows ({why})."
        return NoPeerError(message, "Install the version that moe-chat pins: pip install --force-reinstall moe-chat")
